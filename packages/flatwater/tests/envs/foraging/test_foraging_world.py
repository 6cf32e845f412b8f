"""The simulators write where they are told to, the same numbers either way, and keep nothing of the past."""

import gc
import itertools
import subprocess
import sys
import tracemalloc

import numpy as np
import psutil
import pytest
from poisoned import begun, every, play, random_actor, row_of

from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.foraging.game import Game, most_border_cells
from flatwater.envs.foraging.search import SearchTeacher
from flatwater.envs.foraging.world import ForagingWorld
from flatwater.envs.world import PADDING
from flatwater_watch.errors import ConfigError


def crowded_world(tokens: int) -> ForagingWorld:
    """Everything is in everybody's sight."""
    return ForagingWorld(ForagingConfig(agents=9, size=7, mines=3, depots=2, walls=2, window=15, tokens=tokens), envs=2)


def test_a_view_in_which_everything_is_has_room() -> None:
    """A simulator stops where what is seen does not fit: not even the fullest view may."""
    world = crowded_world(128)
    rows = play(world, begun(world, [1, 2]), 300, random_actor(world, 3))
    assert max(int((row.obs[..., 0] != PADDING).sum(-1).max()) for row in rows) > 64
    for size, window in itertools.product((8, 12, 20), (5, 11, 15)):
        config = ForagingConfig(agents=12, size=size, window=window, mines=2, depots=2, walls=0, tokens=16)
        for seed in range(40):
            Game(config).begin(seed)


def test_what_does_not_fit_is_what_is_farthest() -> None:
    """16 tokens are the first 16 of what 128 would be: what is nearest comes first."""
    small, large = crowded_world(16), crowded_world(128)
    for few, all_ in zip(
        *(play(world, begun(world, [1, 2]), 20, random_actor(world, 3)) for world in (small, large)), strict=True
    ):
        assert np.array_equal(few.obs, all_.obs[:, :, :16])
        assert np.array_equal(few.reward, all_.reward)
    places = all_.obs[0, 0, 4:, 0]
    places = places[places != PADDING].astype(int)
    steps = abs(places // 16 - 7) + abs(places % 16 - 7)
    assert (np.diff(steps) >= 0).all()


def test_the_border_in_sight_is_what_a_walk_around_the_map_sees() -> None:
    for size, window in itertools.product((5, 8, 20), (3, 7, 11, 15)):
        config = ForagingConfig(agents=1, size=size, window=window, mines=1, depots=1, walls=0)
        border = np.ones((size + 2 * window, size + 2 * window), np.int64)
        border[:window], border[-window:], border[:, :window], border[:, -window:] = 0, 0, 0, 0
        border[window + 1 : -window - 1, window + 1 : -window - 1] = 0
        sums = [
            border[window + y - window // 2 :][:window, window + x - window // 2 :][:, :window].sum()
            for y, x in itertools.product(range(1, size - 1), repeat=2)
        ]
        assert most_border_cells(config) == max(sums)


def test_an_agent_is_paid_for_each_delivery_and_for_nothing_else() -> None:
    world = ForagingWorld(envs=2, config=ForagingConfig(steps=100, price=0.3))
    teacher = SearchTeacher(world)
    teacher.begin_(every(world))
    played = play(world, begun(world, [1, 2]), 100, teacher.step_batch)
    paid = np.stack([row.reward for row in played])
    assert (paid > 0).sum() > 40
    assert sorted(set(paid.round(4).ravel().tolist())) == pytest.approx([0.0, 0.3])
    assert [bool(row.truncated.any()) for row in played] == [False] * 99 + [True]
    assert not any(row.terminated.any() for row in played)


def test_nothing_is_kept_over_steps_and_episodes() -> None:
    """200 steps of 4 simulators, 20 episodes of each, with a teacher; `slow` has 20,000."""
    assert kept_over(200)[0] <= 4e3


@pytest.mark.slow
def test_nothing_is_kept_over_20_000_steps_with_resets() -> None:
    traced, resident = kept_over(20_000)
    assert traced <= 16e3
    assert resident <= 1e6


def kept_over(steps: int) -> tuple[int, int]:
    """Bytes traced and resident after so many steps, with a new episode every ten."""
    world = ForagingWorld(envs=4, config=ForagingConfig(steps=10))
    teacher = SearchTeacher(world)
    row, actions, seeds = row_of(world), np.zeros((4, 4), np.int64), np.arange(4)

    def live(count: int) -> None:
        for step in range(count):
            if step % 10 == 0:
                seeds[:] += 4
                world.begin_(every(world), seeds, row.obs)
                teacher.begin_(every(world))
            teacher.step_batch(row.obs, actions)
            world.step_(actions, *row)

    live(100)
    gc.collect()
    resident = psutil.Process().memory_info().rss
    tracemalloc.start()
    live(50)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    live(steps)
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return traced, psutil.Process().memory_info().rss - resident


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("agents", 0, r"foraging\.agents = 0"),
        ("mines", 0, r"foraging\.mines = 0: .*1 to 65,536"),
        ("walls", -1, r"foraging\.walls = -1"),
        ("size", 7, r"foraging\.size = 7: .*37.* 25 cells"),
        ("window", 10, r"foraging\.window = 10: .*odd"),
        ("window", 17, r"foraging\.window = 17"),
        ("tokens", 8, r"foraging\.tokens = 8: .*16 to 4,096"),
        ("price", 0.0, r"foraging\.price = 0.0: .*above 0"),
        ("steps", 0, r"foraging\.steps = 0"),
    ],
)
def test_a_game_that_cannot_be_is_refused(field: str, value: float, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ForagingConfig(**{field: value})


def test_a_world_without_mettagrid_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "flatwater.envs.foraging.game", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "mettagrid"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mettagrid", None)
    with pytest.raises(ConfigError, match=r"mettagrid.*pip install 'flatwater\[teach\]'"):
        ForagingWorld(ForagingConfig(), envs=1)


def test_names_of_worlds_are_imported_without_their_simulators() -> None:
    heavy = ("mettagrid", "minigrid", "pettingzoo")
    code = f"import flatwater.envs.worlds, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_stepping_before_an_episode_is_refused() -> None:
    world = ForagingWorld(envs=2, config=ForagingConfig())
    row = row_of(world)
    world.begin_(np.array([True, False]), np.array([1, 2]), row.obs)
    with pytest.raises(RuntimeError, match=r"environment 1 .*begin_"):
        world.step_(np.zeros((2, 4), np.int64), *row)


def test_what_is_seen_is_what_the_configuration_says() -> None:
    world = ForagingWorld(
        envs=1, config=ForagingConfig(agents=1, size=13, window=15, mines=7, depots=2, walls=5, tokens=128)
    )
    row = play(world, begun(world, [4]), 3, random_actor(world, 1))[-1]
    tags = row.obs[0, 0][row.obs[0, 0, :, 1] == world.features["tag"]][:, 2]
    counted = {name: int((tags == value).sum()) for name, value in world.tags.items()}
    assert counted["agent"] == 1
    assert 0 < counted["mine"] <= 7
    assert counted["depot"] <= 2
    assert counted["wall"] <= 5 + 4 * 12
