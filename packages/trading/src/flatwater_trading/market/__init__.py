"""Trading episodes on a panel: one batched simulator with three faces."""
