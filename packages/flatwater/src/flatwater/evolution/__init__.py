"""Selection, crossover and mutation of stacked members, in place."""

from flatwater_watch.lazy import offer_names

__getattr__, __dir__ = offer_names(__name__)
