"""Parsed documents in a module list that is read once.

Thread: https://stackoverflow.com/questions/22380990/how-do-i-free-up-the-memory-used-by-an-lxml-etree
Looks like: the list holds small objects, and each adds megabytes outside of Python.
Fix: take what is needed from each tree, and drop the tree.
"""

import sys
import time

from lxml import etree

XML_FILES = []


def main(rounds: int) -> None:
    text = b"<cities>" + b"<city><code>1</code><name>x</name></city>" * 6000 + b"</cities>"
    for _ in range(rounds):
        XML_FILES.append(etree.fromstring(text))  # <- here
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
