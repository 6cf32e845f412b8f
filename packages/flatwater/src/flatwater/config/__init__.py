"""Configuration: frozen dataclasses next to their components, read from and written to TOML."""

from flatwater_watch.lazy import offer_names

__getattr__, __dir__ = offer_names(__name__)
