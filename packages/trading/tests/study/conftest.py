"""Small runs, each trained once, for the tests of studies."""

from small_runs import _no_picture, _own_place, cache, replayed, same, tiny, train

__all__ = ["_no_picture", "_own_place", "cache", "replayed", "same", "tiny", "train"]
