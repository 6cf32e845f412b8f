"""Learning of a stacked population: one file for each algorithm, which reads from top to bottom."""

from flatwater_watch.lazy import offer_names

__getattr__, __dir__ = offer_names(__name__)
