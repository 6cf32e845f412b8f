"""Environments and the contract they keep."""
