"""A search for products like one that a visitor looks at, by the vectors of their pictures.

Thread: https://github.com/facebookresearch/faiss/issues/1851
Looks like: a shop of two thousand products needs more memory after each import.
Cause: each import adds the vectors of products that changed, and the old ones stay in the index, which lies in C++.
Fix: `index.remove_ids(...)` of a product's old vector before the new one, or `index.reset()` and a new import.
"""

import sys
import time

import faiss
import numpy as np

WIDTH = 256


class Shop:
    def __init__(self, products):
        self.products = products
        self.index = faiss.IndexIDMap(faiss.IndexFlatIP(WIDTH))
        self.random = np.random.default_rng(4)

    def import_changes(self, share):
        changed = np.flatnonzero(self.random.random(self.products) < share)
        vectors = self.random.normal(size=(len(changed), WIDTH)).astype("float32")
        faiss.normalize_L2(vectors)
        self.index.add_with_ids(vectors, changed)  # <- here

    def find_similar(self, vector):
        _, ids = self.index.search(vector, 5)
        return ids[0]


def main(hours: int) -> None:
    shop = Shop(2000)
    found = []
    for _ in range(hours):
        shop.import_changes(0.2)
        for _ in range(3):
            found = shop.find_similar(shop.random.normal(size=(1, WIDTH)).astype("float32"))
        time.sleep(0.03)
    print("similar to the last one:", len(found))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 250)
