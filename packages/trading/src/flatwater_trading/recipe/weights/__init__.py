"""The recipe `weights`: target weights on a panel, learned by differentiating the account."""
