"""Train agents in any environment, for days, in constant memory."""

from flatwater_watch.lazy import offer_names

__version__ = "0.1.0"
__getattr__, __dir__ = offer_names(__name__)
