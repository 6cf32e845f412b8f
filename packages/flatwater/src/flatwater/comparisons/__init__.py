"""Runs side by side: their settings that differ, their results, and how sure a difference is."""
