"""One Markdown converter for all pages: the raw HTML of each page stays in its stash.

Thread: https://github.com/Python-Markdown/markdown/issues/305
Looks like: the site is rendered slower and slower, and memory climbs with the pages.
Fix: `converter.reset()` before each page.
"""

import sys
import time

import markdown


class Site:
    def __init__(self) -> None:
        self.converter = markdown.Markdown()

    def render(self, number: int) -> str:
        return self.converter.convert(page(number))  # <- here


def page(number: int) -> str:
    rows = "".join(f"<tr><td>{number}</td><td>row {row} of the table</td></tr>" for row in range(600))
    return f"Page {number}\n\n<table>{rows}</table>\n\nThe end of page {number}.\n"


def main(rounds: int) -> None:
    site, written = Site(), 0
    for number in range(rounds):
        written += len(site.render(number))
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
