"""Environments that are networks in training: an agent grows E host networks, by seeds in their slots."""

from flatwater_watch.lazy import offer_names

__getattr__, __dir__ = offer_names(__name__)
