"""The links of pages, counted by html5lib; each tree refers to itself and is left to the collector."""

import random
import sys

import html5lib


def write_page(rows: int) -> str:
    cells = [
        f"<tr><td><a href='/item/{random.randrange(10**6)}'>Item {row}</a><td>{random.random():.5f}<p>in stock"
        for row in range(rows)
    ]
    return "<!doctype html><title>List</title><table>" + "".join(cells) + "</table>"


def count_links(text: str) -> int:
    document = html5lib.parse(text, treebuilder="dom")
    return len([link for link in document.getElementsByTagName("a") if link.getAttribute("href")])


def main(pages: int) -> None:
    random.seed(10)
    links = 0
    for page in range(pages):
        links += count_links(write_page(150 + page % 60))
    sys.stdout.write(f"{links} links\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 260)
