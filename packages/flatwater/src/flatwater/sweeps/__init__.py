"""Sweeps: many runs of one kind, each with settings drawn from a space, and the best of them."""
