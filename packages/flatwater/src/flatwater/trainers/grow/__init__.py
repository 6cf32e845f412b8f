"""PPO over networks that grow: every environment is a host in training, with slots for new modules."""
