"""Target weights, learned by differentiating the account, and judged on days that they were not learned from."""
