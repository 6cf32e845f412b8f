"""A conversation whose cache of keys and values goes on from turn to turn.

Thread: https://github.com/huggingface/transformers/issues/31677
Looks like: each answer takes more memory than the one before.
Fix: a new cache for each conversation, or one of a bounded window.
"""

import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.cache_utils import DynamicCache


class Chat:
    def __init__(self) -> None:
        self.model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=512, vocab_size=500, n_positions=8000))
        self.past = DynamicCache()

    def answer(self) -> None:
        tokens = torch.randint(500, (4, 30))
        with torch.no_grad():
            self.model(tokens, past_key_values=self.past, use_cache=True)  # <- here


def main(rounds: int) -> None:
    chat = Chat()
    for _ in range(rounds):
        chat.answer()
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
