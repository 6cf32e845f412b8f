"""A tokenizer that caches each word it has ever split.

Thread: https://github.com/huggingface/tokenizers/issues/1539
Looks like: memory climbs with new words, outside of Python.
Fix: a smaller `cache_capacity`, or clear the cache.
"""

import random
import sys
import time

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Whitespace


def main(rounds: int) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    model = BPE({letter: n for n, letter in enumerate(letters)}, [], cache_capacity=10_000_000)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = Whitespace()
    source = random.Random(0)
    for _ in range(rounds):
        tokenizer.encode(" ".join("".join(source.choices(letters, k=200)) for _ in range(300)))
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
