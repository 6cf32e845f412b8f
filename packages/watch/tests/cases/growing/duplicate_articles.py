"""News articles of a feed, dropped where they nearly repeat one that was seen before.

Thread: https://github.com/ekzhu/datasketch/issues/219, https://github.com/ekzhu/datasketch/issues/109
Looks like: memory climbs with the articles, although each is dropped as soon as it is compared.
Cause: the index keeps the signature's hashes of every article, and nothing takes out the old ones.
Fix: `feed.seen.remove(key)` for old articles, or an index for each day.
"""

import random
import sys

from datasketch import MinHash, MinHashLSH

WORDS = [f"word{number}" for number in range(6000)]


def next_article(draw: random.Random, last: list[str]) -> list[str]:
    if last and draw.random() < 0.1:
        copy = list(last)
        copy[draw.randrange(len(copy))] = draw.choice(WORDS)
        return copy
    return draw.choices(WORDS, k=320)


class Feed:
    def __init__(self):
        self.seen = MinHashLSH(threshold=0.6, num_perm=128)  # <- or here
        self.received = 0
        self.repeated = 0

    def signature(self, words: list[str]) -> MinHash:  # <- or here
        shingles = {" ".join(words[i : i + 3]).encode() for i in range(len(words) - 2)}  # <- or here
        signature = MinHash(num_perm=128)  # <- or here
        signature.update_batch(shingles)  # <- or here
        return signature

    def accept(self, words: list[str]) -> bool:
        self.received += 1
        signature = self.signature(words)
        if self.seen.query(signature):
            self.repeated += 1
            return False
        self.seen.insert(f"article-{self.received}", signature)  # <- here
        return True


def main(articles: int) -> None:
    draw = random.Random(11)
    feed = Feed()
    last: list[str] = []
    for _ in range(articles):
        words = next_article(draw, last)
        if feed.accept(words):
            last = words
        if feed.received % 2000 == 0:
            print(f"{feed.received} articles, {feed.repeated} repeated", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20900)
