"""Runs of these tests paint no pictures."""

from small_runs import _no_picture

__all__ = ["_no_picture"]
