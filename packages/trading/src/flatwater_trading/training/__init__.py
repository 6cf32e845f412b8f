"""Evolutionary reinforcement learning: a population of traders evolves on a panel."""
