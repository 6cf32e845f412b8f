"""Runs of PPO over networks that grow: their configuration, plan, composition, score and result."""
