"""Configuration: frozen dataclasses beside their components, read from and written to TOML."""
