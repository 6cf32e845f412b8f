"""The memory contract. Imports no trainer and does not need torch to be installed."""
