"""Read-only meters of a running process. None of them but `torch_ops` needs torch."""
