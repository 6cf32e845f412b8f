"""The recipes that come with Flatwater; `recipe.py` has their table."""

from flatwater_watch.lazy import offer_names

__getattr__, __dir__ = offer_names(__name__)
