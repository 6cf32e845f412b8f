"""Read-only meters of a running process. None of them needs torch."""
