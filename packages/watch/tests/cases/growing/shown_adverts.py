"""A filter of texts that were sent before, so that the same advert is not shown twice.

Thread: https://github.com/WojciechMula/pyahocorasick/issues/135
Looks like: the filter grows day by day, though a text is to be remembered for an hour only.
Cause: nobody takes texts out of the automaton, which lies in C.
Fix: `automaton.remove_word(text)` when its hour is over.
"""

import random
import sys
import time
from types import SimpleNamespace

import ahocorasick

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def invent_text():
    return " ".join("".join(random.choices(LETTERS, k=7)) for _ in range(8))


def is_new(filters, text):
    if filters.seen.exists(text):
        return False
    filters.seen.add_word(text, 1)  # <- here
    return True


def main(hours: int) -> None:
    filters = SimpleNamespace(name="adverts", seen=ahocorasick.Automaton(ahocorasick.STORE_INTS))
    shown = 0
    for _ in range(hours):
        shown += sum(is_new(filters, invent_text()) for _ in range(120))
        time.sleep(0.02)
    print("shown", shown)


if __name__ == "__main__":
    random.seed(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
