"""Run folders: start, resume, evaluate, list."""
