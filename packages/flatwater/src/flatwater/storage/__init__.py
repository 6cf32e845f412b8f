"""Whole-object writes to a directory: a file is there complete, or not at all."""
