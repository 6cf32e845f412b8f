"""A string of each page is kept, and with it the tree of the page.

Thread: https://github.com/MechanicalSoup/MechanicalSoup/issues/253
Looks like: memory climbs with the pages that are polled, although a few letters of each are kept.
Fix: `str(soup.title.string)`, or `soup.decompose()` at the end.
"""

import sys
import time

from bs4 import BeautifulSoup

ROWS = "".join(f"<tr><td>device {n}</td><td class='up'>00:11:22:33</td></tr>" for n in range(500))


def poll(n: int) -> str:
    soup = BeautifulSoup(f"<title>router {n}</title><table>{ROWS}</table>", "html.parser")  # <- here
    return soup.title.string


def main(rounds: int) -> None:
    titles = []
    for n in range(rounds):
        titles.append(poll(n))
        time.sleep(0.11)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
