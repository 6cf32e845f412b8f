"""The networks of traders."""
