"""Exact checkpoints of a state tree: manifest, writer, reader, retention."""

from flatwater_watch.lazy import offer_names

__getattr__, __dir__ = offer_names(__name__)
