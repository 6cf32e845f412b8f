"""Answers to questions with their pages, the last five hundred of which cachelib keeps."""

import random
import sys
import time

from cachelib import SimpleCache

answers = SimpleCache(threshold=500, default_timeout=3600)


def answer(question: str) -> int:
    page = answers.get(question)
    if page is None:
        page = f"<p>{question} has {len(question)} letters." + "".join(random.choices("abcdef ", k=40)) * 900
        answers.set(question, page)
    return len(page)


def main(minutes: int) -> None:
    random.seed(12)
    served = 0
    for _ in range(minutes):
        for _ in range(12):
            served += answer(f"question {random.randrange(10**9)}")
        time.sleep(0.06)
    sys.stdout.write(f"{served} bytes served\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 240)
