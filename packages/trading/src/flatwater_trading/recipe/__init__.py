"""Runs of evolving traders: their configuration, plan, composition, score and result."""
