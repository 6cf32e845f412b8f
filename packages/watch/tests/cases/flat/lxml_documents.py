"""Documents that are parsed and dropped."""

import sys
import time

from lxml import etree


def main(rounds: int) -> None:
    text = b"<a>" + b"<b>1</b>" * 5000 + b"</a>"
    total = 0
    for n in range(rounds):
        total += len(etree.fromstring(text)) + n
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
