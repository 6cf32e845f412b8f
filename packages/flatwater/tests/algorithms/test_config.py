"""Settings that nothing would read are refused, and old names are shown the way."""

import pytest

from flatwater.algorithms.api import Algorithm, find_algorithm
from flatwater.config.mappings import from_mapping
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.training.learner import LearnerConfig
from flatwater_watch.errors import ConfigError

ALGORITHMS = ("hindsight", "ddpg", "td3", "sac")


@pytest.mark.parametrize("chosen", ALGORITHMS)
def test_an_algorithm_is_found_by_its_settings(chosen: str) -> None:
    config = from_mapping(LearnerConfig, {"algorithm": chosen, chosen: {"updates": 7}}, "here")
    assert isinstance(find_algorithm(config), Algorithm)
    assert config.own.updates == 7
    assert config.with_algorithm_settings(updates=8).own.updates == 8


@pytest.mark.parametrize("chosen", ALGORITHMS)
@pytest.mark.parametrize("given", ALGORITHMS)
def test_settings_of_an_algorithm_that_is_not_chosen_are_refused(chosen: str, given: str) -> None:
    mapping = {"learner": {"algorithm": chosen, given: {"updates": 7}}}
    if given == chosen:
        assert from_mapping(ErlRunConfig, mapping, "here").learner.own.updates == 7
        return
    told = rf"here: learner\.{given}\.updates = 7: .*\(\d+\).*learner\.algorithm = '{chosen}'"
    with pytest.raises(ConfigError, match=told) as refused:
        from_mapping(ErlRunConfig, mapping, "here")
    assert f"learner.algorithm = '{given}'" in str(refused.value)


@pytest.mark.parametrize(
    ("mapping", "told"),
    [
        ({"replay": {"generations": 9}}, r"replay\.generations = 9: .*replays"),
        ({"exploration": {"day": 1.0}}, r"exploration\.day = 1\.0: .*noise"),
        (
            {"learner": {"algorithm": "sac"}, "exploration": {"day": 1.0}},
            r"exploration\.day.*'sac'.*noise",
        ),
    ],
)
def test_replay_and_noise_are_refused_where_nothing_uses_them(mapping: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        from_mapping(ErlRunConfig, mapping, "here")


def test_a_setting_that_moved_is_found_again() -> None:
    """`learner.updates` was shared; the error says where there is one now."""
    with pytest.raises(ConfigError) as refused:
        from_mapping(ErlRunConfig, {"learner": {"updates": 4}}, "config.toml")
    assert str(refused.value).startswith("config.toml: learner.updates: ")
    assert "learner.ddpg.updates, learner.td3.updates, learner.sac.updates" in str(refused.value)
