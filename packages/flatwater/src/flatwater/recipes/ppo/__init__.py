"""PPO in any environment: its settings, plan, run and score, which teaching shares."""
