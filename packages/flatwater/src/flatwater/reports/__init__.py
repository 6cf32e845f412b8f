"""Pictures and pages made from a run folder alone."""

from flatwater_watch.lazy import offer_names

__getattr__, __dir__ = offer_names(__name__)
