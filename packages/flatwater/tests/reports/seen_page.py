"""A page as a browser would find it."""

import json
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link"}
HOSTILE = "</script><img src=x onerror=alert(1)><script>alert(2)</script>"


class Seen(HTMLParser):
    """What a browser would find: elements in balance, their attributes, and the text outside of scripts and styles."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.titles: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts[-1] += data
        elif inside != "style":
            self.text += data
        if inside == "h2":
            self.titles.append(data)


def charts(seen: Seen) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(seen.scripts[0]) if seen.scripts else []
    return found


def colours(value: object) -> set[str]:
    """Every colour that stands for a variable of the style sheet."""
    if isinstance(value, list):
        return set().union(*map(colours, value)) if value else set()
    if isinstance(value, dict):
        own = {item for key, item in value.items() if key in {"color", "fillcolor"} and isinstance(item, str)}
        return own.union(*(colours(item) for item in value.values()))
    return set()


def filled_in(value: Any) -> Any:
    if isinstance(value, list):
        return [filled_in(item) for item in value]
    if isinstance(value, dict):
        return {key: "#123456" if key in {"color", "fillcolor"} else filled_in(item) for key, item in value.items()}
    return value
