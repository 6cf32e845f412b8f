"""Images are recognised with their channels first or last, alone or beside numbers; all else is a vector."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces as gym

from flatwater.envs.wrapped.spaces import make_reader, network_input_space
from flatwater.nets.observation import nest_parts, split_parts, view_numbers


def read(space: gym.Space[Any], observation: Any, form: str = "auto", *, raw: bool = False) -> Any:
    """An observation, written into a row and read again as a network reads it."""
    reader = make_reader(space, "one", form)  # type: ignore[arg-type]
    out = np.zeros(reader.shape, np.float32 if reader.form == "vector" else np.uint8)
    reader.write(observation, out)
    row = torch.from_numpy(out).flatten()[None]
    assert reader.form == "image"
    numbers = view_numbers(row, reader.parts, torch.float32)
    return nest_parts(reader.parts, split_parts(reader.parts, numbers, row, is_raw=raw))


@pytest.mark.parametrize(
    ("shape", "order", "read_shape"),
    [
        ((84, 84, 4), (2, 0, 1), (4, 84, 84)),
        ((4, 84, 84), (0, 1, 2), (4, 84, 84)),
        ((210, 160, 3), (2, 0, 1), (3, 210, 160)),
        ((7, 7, 7), (2, 0, 1), (7, 7, 7)),
        ((20, 30), (0, 1), (1, 20, 30)),
        ((4, 84, 84, 3), (0, 3, 1, 2), (12, 84, 84)),
        ((4, 3, 84, 84), (0, 1, 2, 3), (12, 84, 84)),
    ],
)
def test_channels_are_first_however_they_came(
    shape: tuple[int, ...], order: tuple[int, ...], read_shape: tuple[int, ...]
) -> None:
    image = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    wanted = torch.from_numpy(image.transpose(order).reshape(1, *read_shape).astype(np.float32)) / 255
    for raw in (False, True):
        found = read(gym.Box(0, 255, shape, np.uint8), image, raw=raw)
        torch.testing.assert_close(found, wanted * 255 if raw else wanted)
        # What `view` in a user's module needs, and what makes convolutions fast.
        layout = torch.channels_last if raw else torch.contiguous_format
        assert found.is_contiguous(memory_format=layout)


def test_frames_of_gymnasium_are_stacked_into_channels() -> None:
    env = gymnasium.Env[Any, Any]()
    env.observation_space = gym.Box(0, 255, (84, 84), np.uint8)
    stacked = gymnasium.wrappers.FrameStackObservation(env, 4)
    reader = make_reader(stacked.observation_space, "frames")
    assert (reader.form, reader.shape, reader.parts[0].read_shape) == ("image", (4, 84, 84), (4, 84, 84))


@pytest.mark.parametrize("space", [gym.Box(0, 255, (2835,), np.uint8), gym.Box(0, 1, (9, 9, 3), np.float32)])
def test_a_row_of_bytes_and_floats_are_vectors(space: gym.Space[Any]) -> None:
    reader = make_reader(space, "one")
    assert (reader.form, reader.shape) == ("vector", (gym.flatdim(space),))


def test_small_numbers_and_flags_are_shares_of_their_highest() -> None:
    space, image = gym.Box(0, 10, (2, 2, 1), np.uint8), np.array([[[10], [5]], [[0], [1]]], np.uint8)
    assert read(space, image).tolist() == [[[[1, 0.5], [0, pytest.approx(0.1)]]]]
    flags = np.array([[[True], [False]], [[False], [True]]])
    assert read(gym.Box(0, 1, (2, 2, 1), np.bool_), flags).tolist() == [[[[1, 0], [0, 1]]]]


def test_images_stand_beside_numbers_in_dicts_and_tuples() -> None:
    space = gym.Dict(
        eyes=gym.Tuple([gym.Box(0, 255, (2, 3, 1), np.uint8), gym.Text(4), gym.Box(-1, 1, (2,), np.float32)]),
        way=gym.Discrete(3, start=1),
    )
    image, body = np.arange(6, dtype=np.uint8).reshape(2, 3, 1), np.array([0.5, -1], np.float32)
    found = read(space, {"eyes": (image, "no", body), "way": 2})
    torch.testing.assert_close(found["eyes"][0] * 255, torch.arange(6.0).view(1, 1, 2, 3))
    assert found["eyes"][1] is None
    assert (found["eyes"][2].tolist(), found["way"].tolist()) == ([[0.5, -1]], [[0, 1, 0]])
    shown = network_input_space(make_reader(space, "one").parts)
    assert shown["way"] == gym.Box(0, 1, (3,), np.float32)  # type: ignore[index]
    assert shown["eyes"][0] == gym.Box(0, 255, (1, 2, 3), np.uint8)  # type: ignore[index]


def test_labels_of_minigrid_are_tokens_and_its_pictures_are_images() -> None:
    words = gym.Text(9)
    labels = gym.Dict(image=gym.Box(0, 255, (7, 7, 3), np.uint8), direction=gym.Discrete(4), mission=words)
    assert make_reader(labels, "one").form == "tokens"
    picture = gym.Dict(image=gym.Box(0, 255, (56, 56, 3), np.uint8), direction=gym.Discrete(4), mission=words)
    assert make_reader(picture, "one").form == "image"
    del labels.spaces["mission"]
    assert make_reader(labels, "one").form == "image"


def test_numbers_that_are_not_finite_are_named_beside_an_image() -> None:
    space = gym.Dict(a=gym.Box(0, 255, (4, 4, 1), np.uint8), b=gym.Box(-1, 1, (2,), np.float32))
    reader = make_reader(space, "one")
    out = np.zeros(reader.shape, np.uint8)
    reader.write({"a": np.zeros((4, 4, 1), np.uint8), "b": np.array([0, np.nan], np.float32)}, out)
    assert np.isnan(reader.numbers(out)).tolist() == [False, True]
    assert reader.part_name(1) == "observation['b'][1]"
