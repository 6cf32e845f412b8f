"""The task that growing networks (hosts) learn: images or vectors with classes, split once: to train, to validate."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.named_imports import find_object
from flatwater.nets.hosts import ImageShape
from flatwater.state.tree import state
from flatwater.user_code import CallGuard
from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr

SHIPPED_TASKS = {"digits": "flatwater.envs.growing.digits:digits"}
"""Short name of a task -> its function."""
EXPECTED_TASK = (
    "a function without arguments that returns images and their classes, or images and classes to train on and then "
    "images and classes to validate with"
)
MINIMUM_IMAGES, MAXIMUM_CLASSES = 8, 1 << 14
"""Fewest images of training and of validation, and most classes."""
IMAGES_PER_VALIDATION, MINIMUM_VALIDATION, MAXIMUM_VALIDATION = 10, 200, 2000
"""One image in ten is for validation, but at least 200, which tell accuracies that are 1 % apart, and at most 2,000."""
_SHUFFLE_SEED = 20261121
"""Seed of the split, so that each part has the same images in every run."""


@state
class Task:
    """Images, P pixels of 0 to 1 each, and their classes, 0 to K - 1."""

    train_images: Float[Tensor, "N P"]
    train_labels: Int[Tensor, " N"]
    valid_images: Float[Tensor, "V P"]
    valid_labels: Int[Tensor, " V"]
    image_shape: ImageShape
    """Channels, height and width of an image, whose product is P, and the number of classes, K."""


def load_task(name: str, device: torch.device) -> Task:
    """Return the task, images and their classes, that a name stands for.

    Args:
        name: `digits`, or `package.module:function`, installed or in the folder where the command runs.
        device: device of the tensors; `meta` makes a plan.

    Raises:
        ConfigError: `name` names no function, or the function's result is no task.
    """
    target = SHIPPED_TASKS.get(name, name)
    if ":" not in target:
        raise ConfigError(
            f"task = {short_repr(name)}: expected {', '.join(SHIPPED_TASKS)}, or package.module:function, "
            f"{EXPECTED_TASK}"
        )
    function = find_object(target, setting=f"task = {short_repr(name)}: it", expected="package.module:function")
    if not callable(function):
        raise ConfigError(f"task = {short_repr(name)}: expected {EXPECTED_TASK}, got a {type(function).__name__}")
    with CallGuard(f"task {short_repr(name)}", function, expected="a function without arguments"):
        result = cast("Callable[[], Any]", function)()
    try:
        return make_task(result, device)
    except ConfigError as error:
        raise ConfigError(f"task = {short_repr(name)}: {error}") from error


def make_task(result: Any, device: torch.device) -> Task:  # noqa: ANN401  (whatever a function returned)
    """Check the arrays that a task function has returned, and put them on a device.

    Args:
        result: two arrays, images and classes, which are split; or four, to train on and to validate with. Images
            [N, C, H, W], [N, H, W] or vectors [N, D], uint8 0 to 255 or numbers; classes [N], 0 to K - 1.
        device: device of the tensors.

    Raises:
        ConfigError: the message says what is wrong and what is expected.
    """
    # Anything but a tuple or list counts as no arrays, and is refused.
    arrays = [np.asarray(array) for array in result] if isinstance(result, tuple | list) else []
    if len(arrays) not in {2, 4}:
        raise ConfigError(f"expected {EXPECTED_TASK}, got a {type(result).__name__} of {len(arrays)} arrays")
    pairs = [arrays[:2], arrays[2:]] if len(arrays) == 4 else _split_images(*arrays)  # noqa: PLR2004  (two arrays, or four)
    for use, (images, labels) in zip(("train on", "validate with"), pairs, strict=True):
        _check_arrays(use, images, labels)
    (train_images, train_labels), (valid_images, valid_labels) = pairs
    if train_images.shape[1:] != valid_images.shape[1:]:
        raise ConfigError(
            f"expected images of one shape, got {train_images.shape[1:]} to train on and {valid_images.shape[1:]} to "
            "validate with"
        )
    class_count = int(max(train_labels.max(), valid_labels.max())) + 1
    if not 2 <= class_count <= MAXIMUM_CLASSES:  # noqa: PLR2004  (fewer are not a choice)
        raise ConfigError(f"expected 2 to {MAXIMUM_CLASSES:,} classes, numbered from 0, got {class_count}")
    return Task(
        train_images=_pixels_to_device(train_images, device),
        train_labels=torch.tensor(train_labels.astype(np.int64), device=device),
        valid_images=_pixels_to_device(valid_images, device),
        valid_labels=torch.tensor(valid_labels.astype(np.int64), device=device),
        image_shape=_image_shape(train_images.shape[1:], class_count),
    )


def _split_images(images: np.ndarray, labels: np.ndarray) -> list[list[np.ndarray]]:
    """Return two pairs, [images, labels] to train on and [images, labels] to validate with.

    The images are shuffled by a fixed seed, so the split is the same every time.
    """
    _check_arrays("learn", images, labels)  # both parts are checked again by the caller
    # Its own generator: the split does not depend on the run's seed.
    order = np.random.default_rng(_SHUFFLE_SEED).permutation(len(images))
    # At most half, so that a small set still has images to train on.
    count = min(max(len(images) // IMAGES_PER_VALIDATION, MINIMUM_VALIDATION), MAXIMUM_VALIDATION, len(images) // 2)
    validation, training = order[:count], order[count:]
    return [[images[training], labels[training]], [images[validation], labels[validation]]]


def _check_arrays(use: str, images: np.ndarray, labels: np.ndarray) -> None:
    """Refuse images and labels of wrong shapes, types or numbers; messages call them images `to {use}`.

    Raises:
        ConfigError: the message names the array, and what was expected.
    """
    if images.ndim not in {2, 3, 4} or 0 in images.shape[1:]:
        raise ConfigError(f"images to {use}: expected the shape [N, C, H, W], [N, H, W] or [N, D], got {images.shape}")
    if len(images) < MINIMUM_IMAGES:
        raise ConfigError(f"images to {use}: expected {MINIMUM_IMAGES} or more, got {len(images)}")
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
        raise ConfigError(
            f"classes to {use}: expected a whole number for each of the {len(images)} images, got {labels.dtype} "
            f"{labels.shape}"
        )
    if labels.min() < 0:
        raise ConfigError(f"classes to {use}: expected numbers from 0, got {labels.min()}")
    if images.dtype.kind not in "iufb" or not np.isfinite(images).all():
        raise ConfigError(
            f"images to {use}: expected uint8 or finite numbers, got {images.dtype} or numbers that are not finite"
        )


def _pixels_to_device(images: np.ndarray, device: torch.device) -> Tensor:
    """Return images as a float32 tensor [N, P], bytes divided by 255."""
    flat = images.reshape(len(images), -1)
    # A float32 divisor, as NumPy divides bytes by a Python number in float64, twice the size.
    pixels = flat / np.float32(255) if flat.dtype == np.uint8 else flat
    return torch.tensor(pixels, dtype=torch.float32, device=device)


def _image_shape(shape: tuple[int, ...], classes: int) -> ImageShape:
    """Return `ImageShape` for a shape (C, H, W), (H, W) or (D,); missing axes have length 1."""
    channels, height, width = (1,) * (3 - len(shape)) + shape  # ones for missing axes, then the given ones
    return ImageShape(channels, height, width, classes)
