"""Environments that are networks in training: E hosts with slots, grown by an agent, in one arena."""

from flatwater_watch.lazy import offer_names

__getattr__, __dir__ = offer_names(__name__)
