"""Trading episodes on a panel: a batched simulator, two Gymnasium environments, orders and baselines."""
