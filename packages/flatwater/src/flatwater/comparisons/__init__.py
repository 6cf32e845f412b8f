"""Runs beside each other: their settings that differ, their results, and how sure a difference is."""
