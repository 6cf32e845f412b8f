"""Runs beside each other: where their settings differ, what came of each, and how sure a difference is."""
