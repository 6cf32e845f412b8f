"""Runs of teaching: their configuration, plan, composition, score and result."""
