"""Images of your own for `flatwater train grow`: 3 x 32 x 32 pixels, 20 classes.

    cd examples/flatwater
    flatwater train grow --task own_task:textures --rounds 3

A class is a pattern of waves, at a place and in colours of its own, under noise; a real task reads files instead.
"""

import numpy as np

CLASSES, EACH, SIDE = 20, 150, 32


def textures() -> tuple[np.ndarray, np.ndarray]:
    """Images [3000, 3, 32, 32], bytes, and their classes [3000]."""
    rng = np.random.default_rng(0)
    across, down = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    labels = np.repeat(np.arange(CLASSES), EACH)
    angle, waves = rng.uniform(0, np.pi, CLASSES), rng.uniform(0.2, 1.2, CLASSES)
    colour = rng.uniform(0.2, 1, (CLASSES, 3, 1, 1))
    phase = rng.uniform(0, 2 * np.pi, (len(labels), 1, 1))
    turned = np.cos(angle[labels])[:, None, None] * across + np.sin(angle[labels])[:, None, None] * down
    pattern = 0.5 + 0.5 * np.sin(waves[labels][:, None, None] * turned + phase)
    noise = rng.normal(0, 0.1, (len(labels), 3, SIDE, SIDE))
    images = np.clip(colour[labels] * pattern[:, None] + noise, 0, 1)
    return (images * 255).astype(np.uint8), labels
