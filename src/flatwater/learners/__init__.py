"""Losses (pure) and updates (in place) of stacked populations."""
