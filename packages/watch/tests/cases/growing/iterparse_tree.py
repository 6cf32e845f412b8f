"""A parser of a stream builds the whole tree behind each element.

Thread: https://stackoverflow.com/questions/12160418/why-is-lxml-etree-iterparse-eating-up-all-my-memory
Looks like: memory climbs with the file that is read, although one element is used at a time.
Fix: `element.clear()`, and delete its earlier siblings.
"""

import sys
import time

from lxml import etree


def main(rounds: int) -> None:
    parser = etree.XMLPullParser(events=("end",))
    parser.feed(b"<log>")
    count = 0
    for _ in range(rounds):
        parser.feed(b"<row><a>1</a><b>2</b></row>" * 6000)  # <- here
        count += sum(1 for _ in parser.read_events())
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
