"""Stacked networks: P members as one, with a leading member axis on every parameter."""

from flatwater_watch.lazy import offer_names

__getattr__, __dir__ = offer_names(__name__)
