"""The state tree: `@state` classes, their leaves, and named random generators."""

from flatwater_watch.lazy import offer_names

__getattr__, __dir__ = offer_names(__name__)
