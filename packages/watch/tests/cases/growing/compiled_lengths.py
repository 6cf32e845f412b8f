"""Sentences of any length, scored one by one by a function under jit.

Thread: https://github.com/jax-ml/jax/issues/2072
Looks like: the process grows as long as new lengths come, and each new one is slow.
Cause: one executable is compiled and kept for each shape, and nothing bounds the cache of `jax.jit`.
Fix: pad to a few lengths, or `jax.clear_caches()` (`score.clear_cache()`) now and then.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

WEIGHTS = jnp.asarray(np.random.default_rng(1).normal(size=(2, 32, 32)).astype("float32"))


@jax.jit
def score(sentence):
    hidden = sentence
    for weights in WEIGHTS:
        attention = jax.nn.softmax(hidden @ hidden.T / 6.0)
        hidden = jnp.tanh(attention @ hidden @ weights) + hidden
    return hidden.mean(axis=1).max()


def main(rounds: int) -> None:
    maker = np.random.default_rng(2)
    total = 0.0
    for n in range(rounds):
        sentence = maker.normal(size=(20 + n, 32)).astype("float32")
        total += float(score(sentence))  # <- here
        time.sleep(0.01)
    print(f"{total:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
