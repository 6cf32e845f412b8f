"""Each env's random numbers as pure functions of its seed: no generator, no state, the same on every device.

    fold(a, b, ...) = mix(... mix(mix(0 + G ^ a) + G ^ b) ...),   32 bits, G = 0x9E3779B9

where fold is `hash_sequence` and mix is `mix_bits`, the finaliser `lowbias32` of Chris Wellons (shift, multiply, shift,
multiply, shift), a bijection of 32 bits whose outputs differ in half their bits where the inputs differ in one. Image
number p of an env's stream is

    (a k + c) mod N,    epoch, k = divmod(p, N),    h = fold(lower half of the seed, upper half, DATA)
    a = the first from 1 + fold(fold(h, epoch), 0) mod (N - 1) upwards that shares no factor with N
    c = fold(fold(h, epoch), 1) mod N

Each epoch is a permutation of the N training images, because a has an inverse mod N. N - 1 always has one, so the
search for a ends below N; if N is prime, the first number is taken. Nothing depends on the number of envs or on their
actions.
"""

import math
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.nets.stack import Layout, views

WEIGHTS, SEEDLING, DATA = range(3)
"""Uses of random numbers: each use has its own stream."""
_MASK, _GOLDEN = 0xFFFFFFFF, 0x9E3779B9
"""The lower 32 bits, and G of the formula above."""
_CHUNK_NUMBERS = 1 << 15
"""Weights of one env drawn at a time: 64-bit integers for all of them at once would take twice their bytes."""


def mix_bits(x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Scramble 32-bit numbers by `lowbias32`; they are in int64, whose products wrap and keep their lower 32 bits."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


def hash_sequence(first_words: Int[Tensor, "..."], *words: Int[Tensor, "..."] | int) -> Int[Tensor, "..."]:
    """Return a 32-bit hash of a sequence of 32-bit numbers, elementwise: `fold` of the module's docstring."""
    # The digest before the first word is 0, so the constant alone is mixed with the word.
    digest = mix_bits(first_words ^ _GOLDEN)
    for word in words:
        digest = mix_bits(((digest + _GOLDEN) & _MASK) ^ word)
    return digest


def stream_key(seed: Int[Tensor, " E"], use: int, *words: Int[Tensor, " E"] | int) -> Int[Tensor, " E"]:
    """Return the 32-bit key of each env's stream of random numbers for one use.

    Args:
        seed: 64-bit seed of each env.
        use: `WEIGHTS`, `SEEDLING` or `DATA`.
        words: further 32-bit numbers that tell streams of the same use apart, such as the number of a slot.
    """
    return hash_sequence(seed & _MASK, (seed >> 32) & _MASK, use, *words)


def image_numbers(
    seed: Int[Tensor, " E"], drawn_images: Int[Tensor, " E"], *, count: int, images: int
) -> Int[Tensor, "B E"]:
    """Return the numbers, 0 to N - 1, of each env's next training images, by the formula of the module's docstring.

    Each epoch of N images is another permutation of all of them: (slope k + offset) mod N for k = 0 to N - 1.

    Args:
        seed: seed of each env.
        drawn_images: images that each env has drawn since its reset.
        count: number of images, B.
        images: number of training images, N, at least 2.
    """
    position = drawn_images + torch.arange(count, device=seed.device)[:, None]  # in the env's stream of images
    epoch, k = position // images, position % images
    stream = hash_sequence(stream_key(seed, DATA), epoch)
    slope = 1 + hash_sequence(stream, 0) % (images - 1)
    offset = hash_sequence(stream, 1) % images
    # Raises each slope to one coprime to N, with as many steps as that can take: a loop until all are coprime would
    # wait for the device.
    for _ in range(longest_non_coprime_run(images)):
        slope = slope + (torch.gcd(slope, torch.full_like(slope, images)) != 1)
    return (slope * k + offset) % images


@lru_cache(maxsize=8)
def longest_non_coprime_run(images: int) -> int:
    """Return the length of the longest run of consecutive numbers below `images` that share a factor with it."""
    longest = run = 0
    for number in range(1, images):
        run = run + 1 if math.gcd(number, images) != 1 else 0
        longest = max(longest, run)
    return longest


def draw_weights_(
    block: Float[Tensor, "E n"], layout: Layout, key: Int[Tensor, " E"], chosen_envs: Bool[Tensor, " E"]
) -> None:
    """Write initial weights of the chosen envs: uniform in +-1/sqrt(fan_in), or a constant where there is no fan-in.

    Args:
        block: written in place.
        layout: names, shapes and fan-ins of a row's weights.
        key: result of `stream_key`; weight i of a row is drawn from the hash of its env's key and i.
        chosen_envs: envs to write; the others stay as they are.
    """
    offset = 0
    for name, view in views(block, layout).items():
        weight, flat = layout.weights[name], view.flatten(1)
        # Without a fan-in, as of norms: a constant, and no random numbers.
        if not weight.fan_in:
            flat.copy_(torch.where(chosen_envs[:, None], weight.start, flat))
        random_numbers = flat.shape[1] if weight.fan_in else 0
        for low in range(0, random_numbers, _CHUNK_NUMBERS):
            part = flat[:, low : low + _CHUNK_NUMBERS]
            index = torch.arange(offset + low, offset + low + part.shape[1], device=block.device)
            # The upper 24 of 32 bits, which float32 holds exactly; times 2^-23 and less 1 they are in [-1, 1).
            bits = hash_sequence(key[:, None], index) >> 8
            values = (bits.to(block.dtype) * 2**-23 - 1) * weight.fan_in**-0.5
            part.copy_(torch.where(chosen_envs[:, None], values, part))
        offset += flat.shape[1]
