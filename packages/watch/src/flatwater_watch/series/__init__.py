"""Readings over time, and whether they rise for good."""
