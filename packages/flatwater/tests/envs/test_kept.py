"""What environments keep, as bytes: back as it was, to the bit and the type, in the room that was allocated."""

import math
import random
from typing import Any

import gymnasium
import numpy as np
import pytest
import stateful
import torch
from gymnasium import wrappers
from hypothesis import given
from hypothesis import strategies as st

from flatwater.envs.kept_state import (
    EpisodeStarts,
    buffer_size,
    decode_state,
    encode_state,
    load_state_,
    read_env_state,
    read_state,
    write_state_,
)
from flatwater_watch.errors import CheckpointError

NUMBERS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=9)
STATES = st.recursive(
    NUMBERS,
    lambda inside: (
        st.lists(inside, max_size=4)
        | st.lists(inside, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inside, max_size=4)
    ),
    max_leaves=12,
)


def equal(one: Any, other: Any) -> bool:
    """Of the same types and values, NaN like NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return [*one] == [*other] and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    return bool(one == other)


@given(STATES)
def test_a_state_comes_back_as_it_was(state: Any) -> None:
    assert equal(decode_state(encode_state(state)), state)


def test_states_of_generators_come_back() -> None:
    ours, theirs, of_torch = np.random.default_rng(5), random.Random(5), torch.Generator().manual_seed(5)
    state = {"numpy": ours.bit_generator.state, "python": theirs.getstate(), "torch": of_torch.get_state()}
    found = decode_state(encode_state(state))
    drawn = ours.random(), theirs.random(), torch.rand((), generator=of_torch)
    ours.bit_generator.state = found["numpy"]
    theirs.setstate(found["python"])
    of_torch.set_state(found["torch"])
    assert (ours.random(), theirs.random(), torch.rand((), generator=of_torch)) == drawn


@pytest.mark.parametrize(
    ("state", "named"),
    [
        ({"a": [1, object()]}, r"state\['a'\]\[1\] is a object"),
        ({"a": {2.5: 1}}, r"state\['a'\] .*key 2\.5"),
        ({"a": np.array([object()])}, r"state\['a'\] .*array of object"),
        ({"a": {1, 2}}, r"state\['a'\] is a set"),
    ],
)
def test_what_cannot_be_saved_is_named_by_its_place(state: Any, named: str) -> None:
    with pytest.raises(TypeError, match=named):
        encode_state(state)


@given(st.binary(max_size=200), st.integers(0, 199), st.integers(0, 255))
def test_other_bytes_are_refused_or_read_and_nothing_else_happens(content: bytes, at: int, value: int) -> None:
    whole = bytearray(encode_state({"a": [1, np.arange(9)], "b": ("x", 2.5, b"y")}))
    whole[at % len(whole)] = value
    for found in (content, bytes(whole)):
        try:
            decode_state(found)
        except CheckpointError as refused:
            assert "checkpoint" in str(refused)  # noqa: PT017


def test_what_becomes_too_long_is_told_and_leaves_nothing_behind() -> None:
    state_bytes = np.zeros(buffer_size({"log": "x"}), np.uint8)
    assert write_state_(state_bytes, {"log": "y" * 1000}) == ""
    assert read_state(state_bytes) == {"log": "y" * 1000}
    assert f"{state_bytes.nbytes:,}" in write_state_(state_bytes, {"log": "y" * 10_000})
    assert read_state(state_bytes) is None
    assert "state['log'] is a set" in write_state_(state_bytes, {"log": {1}})


@pytest.mark.parametrize(
    "wrap",
    [
        wrappers.NormalizeObservation,
        wrappers.NormalizeReward,
        wrappers.RecordEpisodeStatistics,
        lambda env: wrappers.RecordEpisodeStatistics(wrappers.NormalizeReward(wrappers.NormalizeObservation(env)), 3),
    ],
)
def test_wrappers_go_on_from_what_was_kept(wrap: Any) -> None:
    """An episode after the state was given back is the one that followed when it was taken."""

    def play(env: Any, seed: int) -> list[Any]:
        env.action_space.seed(seed)
        seen = [env.reset(seed=seed)[0].tobytes()]
        for _ in range(20):
            now, paid, over, cut, info = env.step(env.action_space.sample())
            seen += [now.tobytes(), float(paid), info.get("episode", {}).get("r")]
            if over or cut:
                break
        return seen

    one, other = wrap(stateful.Line()), wrap(stateful.Line())
    for seed in range(4):
        play(one, seed)
    kept = encode_state(read_env_state(one))
    load_state_(other, decode_state(kept))
    assert encode_state(read_env_state(other)) == kept
    assert play(one, 9) == play(other, 9)
    assert encode_state(read_env_state(one)) == encode_state(read_env_state(other)) != kept


@pytest.mark.parametrize("kind", ["NormalizeObservation", "NormalizeReward", "RecordEpisodeStatistics"])
def test_wrappers_of_vector_environments_are_known(kind: str) -> None:
    def make() -> Any:
        envs = gymnasium.vector.SyncVectorEnv([stateful.Line] * 2)
        return vars(wrappers.vector)[kind](envs)

    one, other = make(), make()
    one.reset(seed=1)
    for _ in range(20):
        one.step(np.ones((2, 1), np.float32))
    load_state_(other, decode_state(encode_state(read_env_state(one))))
    assert (
        encode_state(read_env_state(other)) == encode_state(read_env_state(one)) != encode_state(read_env_state(make()))
    )


def test_nothing_is_allocated_for_what_keeps_nothing() -> None:
    copies = [stateful.Line()]
    assert EpisodeStarts(copies, stateful.Line).state_bytes == 0


def test_a_state_of_other_wrappers_is_refused() -> None:
    with pytest.raises(CheckpointError, match="2 wrappers"):
        load_state_(stateful.Line(), [{}, {}])
