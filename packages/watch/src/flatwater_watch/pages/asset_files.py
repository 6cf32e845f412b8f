"""The style sheet and the script of pages, which are files of this package."""

from importlib.resources import files


def read_asset(name: str) -> str:
    """Return the text of a file in `assets/`."""
    return files("flatwater_watch.pages").joinpath("assets", name).read_text(encoding="utf-8")
