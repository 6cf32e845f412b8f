"""How people meet the finder: a command, a context, pytest, a notebook, a page."""
