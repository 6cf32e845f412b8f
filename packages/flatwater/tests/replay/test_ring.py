"""The generic replay against a slow reference that keeps whole transitions in lists."""

from dataclasses import dataclass, field

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flatwater.replay.config import ReplayConfig
from flatwater.replay.ring import Ring, append_, build_ring, draw, drawable_count, gather, set_priorities_, start_
from flatwater.state.tree import leaves, nbytes
from flatwater_watch.errors import ConfigError

CPU = torch.device("cpu")
NUMBER = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)


def ring_of(capacity: int, envs: int, *, prioritised: bool = False) -> Ring:
    config = ReplayConfig(capacity=capacity, warmup=1, prioritised=prioritised)
    return build_ring(config, NUMBER, NUMBER, envs=envs, device=CPU)


@dataclass
class Stream:
    """One env's history as a plain list of slots: [observation, transition that starts there or None]."""

    slots: list[list[object]] = field(default_factory=list)

    def transitions(self, length: int) -> list[tuple[float, ...]]:
        return [slot[1] for slot in self.slots[-length:] if slot[1] is not None]


def play_(ring: Ring, streams: list[Stream], ends: list[list[int]]) -> None:
    """Steps with numbered observations; ends[t][e]: 0 goes on, 1 terminates, 2 truncates, 3 is cut by a restart."""
    count, rng = iter(range(1, 1_000_000)), torch.Generator().manual_seed(0)
    everyone = torch.arange(len(streams))

    def begin(which: torch.Tensor) -> None:
        obs = [float(next(count)) for _ in which]
        start_(ring, which, torch.tensor(obs, dtype=torch.float64).unsqueeze(1))
        for e, number in zip(which.tolist(), obs, strict=True):
            streams[e].slots.append([number, None])

    begin(everyone)
    for row in ends:
        end = torch.tensor(row)
        action, reward = (
            torch.rand(len(row), 1, dtype=torch.float64, generator=rng),
            torch.rand(len(row), generator=rng),
        )
        obs = torch.tensor([float(next(count)) for _ in row], dtype=torch.float64)
        append_(
            ring,
            action=action,
            reward=reward,
            terminated=end == 1,
            truncated=end == 2,
            next_obs=obs.unsqueeze(1),
        )
        for e, stream in enumerate(streams):
            last = stream.slots[-1]
            last[1] = (last[0], float(action[e]), float(reward[e]), float(end[e] != 1), float(obs[e]))
            stream.slots.append([float(obs[e]), None])
        if end.any():
            begin(end.nonzero().squeeze(1))


def stored_rows(ring: Ring) -> list[tuple[float, ...]]:
    index = (ring.priorities.mass > 0).nonzero().T
    batch = gather(ring, index)
    columns = (batch.obs[0, :, 0], batch.action[0, :, 0], batch.reward[0], batch.discount[0], batch.next_obs[0, :, 0])
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@settings(deadline=None, max_examples=60)
@given(data=st.data(), capacity=st.integers(1, 30), steps=st.integers(1, 5))
def test_rewards_of_several_steps_are_summed_to_the_end_of_an_episode_and_no_further(
    *, data: st.DataObject, capacity: int, steps: int
) -> None:
    ring, streams = ring_of(capacity, 2), [Stream() for _ in range(2)]
    rows = st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), min_size=2, max_size=2)
    play_(ring, streams, data.draw(st.lists(rows, min_size=1, max_size=60)))
    expected = []
    for stream in streams:
        held = stream.slots[-(len(ring.reward) // 2) :]
        for at, slot in enumerate(held):
            following, reward, factor = at, 0.0, 1.0
            while slot[1] is not None and following < at + steps and held[following][1] is not None:
                _, _, paid, goes_on, obs = held[following][1]
                factor = 0.5 ** (following - at)
                reward, following = reward + factor * paid, following + 1
                if not goes_on:
                    break
            if slot[1] is not None:
                expected.append((slot[0], reward, factor * goes_on, obs))

    index = (ring.priorities.mass > 0).nonzero().T
    batch = gather(ring, index, steps=steps, gamma=0.5)

    columns = (batch.obs[0, :, 0], batch.reward[0], batch.discount[0], batch.next_obs[0, :, 0])
    found = sorted(zip(*(column.tolist() for column in columns), strict=True))
    assert np.allclose(np.array(found).reshape(-1, 4), np.array(sorted(expected)).reshape(-1, 4))


@settings(deadline=None, max_examples=60)
@given(data=st.data(), capacity=st.integers(1, 30), envs=st.integers(1, 3), prioritised=st.booleans())
def test_holds_the_last_transitions_in_the_storage_it_began_with(
    *, data: st.DataObject, capacity: int, envs: int, prioritised: bool
) -> None:
    ring, streams = ring_of(capacity, envs, prioritised=prioritised), [Stream() for _ in range(envs)]
    home = [leaf.value.data_ptr() for leaf in leaves(ring) if isinstance(leaf.value, torch.Tensor)]
    held_at_first = nbytes(ring)
    row = st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), min_size=envs, max_size=envs)

    play_(ring, streams, data.draw(st.lists(row, max_size=40)))

    length = len(ring.reward) // envs
    kept = sorted(t for stream in streams for t in stream.transitions(length))
    assert stored_rows(ring) == kept
    assert drawable_count(ring) == len(kept)
    assert [leaf.value.data_ptr() for leaf in leaves(ring) if isinstance(leaf.value, torch.Tensor)] == home
    assert nbytes(ring) == held_at_first
    if kept:
        index = draw(ring, (2, 50), torch.Generator().manual_seed(0)).index
        drawn = gather(ring, index)
        assert set(zip(drawn.obs.flatten().tolist(), drawn.next_obs.flatten().tolist(), strict=True)) <= {
            (t[0], t[-1]) for t in kept
        }


@pytest.mark.parametrize("envs", [1, 4, 7])
def test_unbroken_streams_hold_at_least_the_capacity(envs: int) -> None:
    ring = ring_of(20, envs)

    play_(ring, [Stream() for _ in range(envs)], [[0] * envs] * 50)

    assert 20 <= drawable_count(ring) < 20 + envs


def test_a_truncated_transition_keeps_its_discount_and_a_terminated_one_loses_it() -> None:
    ring, streams = ring_of(10, 1), [Stream()]

    play_(ring, streams, [[0], [2], [1], [0]])

    assert [t[3] for t in stored_rows(ring)] == [1.0, 1.0, 0.0, 1.0]


def test_gymnasiums_next_step_autoreset_keeps_no_transition_across_the_reset() -> None:
    ring = ring_of(10, 1)
    start_(ring, torch.tensor([0]), torch.tensor([[1.0]]))
    for number, ends in ((2.0, True), (10.0, False), (11.0, False)):
        append_(
            ring,
            action=torch.zeros(1, 1),
            reward=torch.zeros(1),
            terminated=torch.tensor([ends]),
            truncated=torch.tensor([False]),
            next_obs=torch.tensor([[number]]),
        )

    assert [(t[0], t[-1]) for t in stored_rows(ring)] == [(1.0, 2.0), (10.0, 11.0)]


def test_stores_every_kind_of_space_as_it_is() -> None:
    spaces = gymnasium.spaces
    space = spaces.Dict(
        image=spaces.Box(0, 255, (4, 5, 3), np.uint8),
        place=spaces.Discrete(7),
        below=spaces.Dict(switches=spaces.MultiDiscrete([2, 3]), wind=spaces.Box(-1, 1, (2,), np.float32)),
    )
    actions = spaces.MultiDiscrete([3, 4])
    ring = build_ring(ReplayConfig(capacity=6, warmup=1), space, actions, envs=2, device=CPU)
    space.seed(0)
    batched = gymnasium.vector.utils.batch_space(space, 2)
    batched.seed(0)
    seen, acted = [batched.sample() for _ in range(4)], [np.array([[n, 0], [0, n]]) for n in range(3)]

    start_(ring, torch.arange(2), seen[0])
    for t in range(3):
        append_(
            ring,
            action=acted[t],
            reward=np.full(2, t),
            terminated=np.zeros(2, bool),
            truncated=np.zeros(2, bool),
            next_obs=seen[t + 1],
        )

    assert ring.observation["image"].dtype == torch.uint8
    batch = gather(ring, torch.tensor([[1, 5]]))  # slot 1 of each env: 4 slots a stream
    for now, observed in ((1, batch.obs), (2, batch.next_obs)):
        np.testing.assert_array_equal(observed["image"][0], seen[now]["image"])
        np.testing.assert_array_equal(observed["place"][0], seen[now]["place"])
        np.testing.assert_array_equal(observed["below"]["switches"][0], seen[now]["below"]["switches"])
        np.testing.assert_array_equal(observed["below"]["wind"][0], seen[now]["below"]["wind"])
    np.testing.assert_array_equal(batch.action[0], acted[1])


def test_rows_of_bfloat16_are_stored_in_the_type_of_the_ring() -> None:
    """NumPy has no such type: an actor that computes in it could not store its actions."""
    ring, zeros = ring_of(8, 1), torch.zeros(1)
    start_(ring, torch.arange(1), torch.zeros(1, 1))
    action = torch.tensor([[0.5]], dtype=torch.bfloat16, requires_grad=True)
    append_(ring, action=action, reward=zeros, terminated=zeros > 0, truncated=zeros > 0, next_obs=torch.ones(1, 1))
    assert stored_rows(ring) == [(0, 0.5, 0, 1, 1)]


def test_a_space_without_arrays_is_refused_by_name() -> None:
    space = gymnasium.spaces.Dict(words=gymnasium.spaces.Text(5))

    with pytest.raises(ConfigError, match=r"observation_space\.words = Text.*Box, Discrete"):
        build_ring(ReplayConfig(), space, NUMBER, envs=1, device=CPU)


def test_an_image_transition_takes_the_bytes_of_one_image() -> None:
    image = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    ring = build_ring(ReplayConfig(capacity=1000), image, gymnasium.spaces.Discrete(4), envs=4, device=CPU)

    per_transition = sum(nbytes(ring).values()) / 1000

    assert per_transition < 84 * 84 * 4 * 1.005 + 40


def test_plan_on_the_meta_device_is_what_is_held() -> None:
    config = ReplayConfig(capacity=100, warmup=1, prioritised=True)

    planned, held_ = (
        nbytes(build_ring(config, NUMBER, NUMBER, envs=3, device=torch.device(name))) for name in ("meta", "cpu")
    )

    assert planned == held_


def test_priorities_of_drawn_transitions_change_what_is_drawn_next() -> None:
    ring = ring_of(10, 1, prioritised=True)
    play_(ring, [Stream()], [[0]] * 8)
    index = torch.arange(8)

    set_priorities_(ring, index, torch.tensor([0.0, 0, 0, 50, 0, 0, 0, 0]))
    drawn = draw(ring, (1, 1000), torch.Generator().manual_seed(0))

    assert (drawn.index == 3).float().mean() > 0.99
    assert drawn.weight is not None
    assert drawn.weight[drawn.index == 3].max() < 0.02 or (drawn.index == 3).all()
