"""Pages that are parsed into trees, of which one text each is looked at and dropped."""

import sys
import time

from bs4 import BeautifulSoup

ROWS = "".join(f"<tr><td>device {n}</td><td class='up'>00:11:22:33</td></tr>" for n in range(60))


def main(rounds: int) -> None:
    letters = 0
    for n in range(rounds):
        for page in range(3):
            soup = BeautifulSoup(f"<title>router {n}-{page}</title><table>{ROWS}</table>", "html.parser")
            letters += len(str(soup.title.string))
        time.sleep(0.13)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
