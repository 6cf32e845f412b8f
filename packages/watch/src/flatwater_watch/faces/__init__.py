"""The interfaces of the finder: a command, a context manager, a pytest plugin, a notebook extension, a page."""
