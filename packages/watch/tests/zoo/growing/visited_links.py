"""A crawler that remembers each address it has seen, in a set of its own.

Looks like: memory climbs with the pages, slowly, and nobody thinks of texts of 60 bytes.
Fix: keep a hash of eight bytes for each address, or forget those of a site that is done.
"""

import sys
import time


class Crawler:
    def __init__(self) -> None:
        self.visited: set[str] = set()

    def links_of(self, page: int) -> list[str]:
        return [f"https://shop.example.org/products/{page}/{n}?page={page}&sort=price" for n in range(4000)]  # <- here

    def crawl(self, pages: range) -> None:
        for page in pages:
            self.visited.update(self.links_of(page))
            time.sleep(0.05)


def main(rounds: int) -> None:
    crawler = Crawler()
    for n in range(rounds):
        crawler.crawl(range(12 * n, 12 * n + 12))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
