"""A space that cannot be searched is refused before the first trial, with the setting and what is wanted."""

from pathlib import Path

import pytest

from flatwater.config.mappings import with_settings
from flatwater.recipes.grow.config import GrowRunConfig
from flatwater.sweeps.space import TRIAL_SOURCE, Choices, Range, read_space
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.training.learner import LearnerConfig
from flatwater_watch.errors import ConfigError

BASE = ErlRunConfig(learner=LearnerConfig(algorithm="ddpg"))


def space_of(text: str, base: object = BASE) -> object:
    path = Path("space.toml")
    path.write_text(text)
    return read_space(path, base)


def test_every_form_is_read() -> None:
    assert space_of(
        """
        observation_features.choices = [["close"], ["close", "rsi"]]
        [learner.ddpg.noise]
        low = 1e-2
        high = 1
        log = true
        [learner.ddpg]
        updates = {low = 10, high = 50, step = 20}
        [learner]
        autocast.choices = ["off", "bf16"]
        """
    ) == {
        "observation_features": Choices((["close"], ["close", "rsi"])),
        "learner.ddpg.noise": Range(low=0.01, high=1.0, log=True, whole=False),
        "learner.ddpg.updates": Range(low=10, high=50, step=20, whole=True),
        "learner.autocast": Choices(("off", "bf16")),
    }


def test_the_space_of_another_kind_of_run_is_checked_against_its_own_configuration() -> None:
    assert space_of("[policy.hidden]\nchoices = [8, 16]", GrowRunConfig()) == {"policy.hidden": Choices((8, 16))}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", r"\[net\.hidden\]"),
        (
            "[learner.ddpg.nois]\nlow = 1\nhigh = 2",
            r'\[learner\.ddpg\.nois\]: .*"noise"\?',
        ),
        ("[lerner.ddpg.noise]\nlow = 1\nhigh = 2", r'\[lerner\]: .*"learner"\?'),
        ("[rounds]\nlow = 1\nhigh = 2", r"\[rounds\]: .*--config"),
        ("[trackers]\nchoices = [[]]", r"\[trackers\]: .*--config"),
        ("[learner.ddpg]\nnoise = 3", r"learner\.ddpg\.noise = 3: .*table \[learner\.ddpg\.noise\]"),
        (
            "[learner.ddpg.noise]\nlow = 0.1\nhi = 2",
            r'\[learner\.ddpg\.noise\] hi: .*low.*"high"\?',
        ),
        ("[learner.ddpg.noise]\nlow = 0.1", r"\[learner\.ddpg\.noise\] high: .*missing"),
        (
            "[learner.ddpg.noise]\nlow = 2\nhigh = 1",
            r"\[learner\.ddpg\.noise\] high = 1\.0: .*low \(2\.0\)",
        ),
        (
            "[learner.ddpg.noise]\nlow = 0\nhigh = 1\nlog = true",
            r"\[learner\.ddpg\.noise\] low = 0\.0: .*log = true",
        ),
        (
            "[learner.ddpg.noise]\nlow = 0.1\nhigh = 1\nlog = 1",
            r"\[learner\.ddpg\.noise\] log = 1: ",
        ),
        ("[learner.ddpg.noise]\nlow = 0.1\nhigh = inf", r"\[learner\.ddpg\.noise\] high = inf: .*finite"),
        (
            "[learner.ddpg.noise]\nlow = 0.1\nhigh = 1\nstep = 0.4",
            r"\[learner\.ddpg\.noise\] high = 1\.0: .*steps \(0\.4\)",
        ),
        (
            "[learner.ddpg.noise]\nlow = 0.1\nhigh = 1\nstep = 0",
            r"\[learner\.ddpg\.noise\] step = 0\.0: .*more than 0",
        ),
        (
            "[learner.ddpg.updates]\nlow = 1\nhigh = 9\nstep = 2\nlog = true",
            r"\[learner\.ddpg\.updates\] step = 2: .*log = true",
        ),
        (
            "[learner.ddpg.updates]\nlow = 1.5\nhigh = 9",
            r"\[learner\.ddpg\.updates\] low = 1\.5: .*whole number",
        ),
        (
            "[learner.ddpg.noise]\nlow = 'a'\nhigh = 1",
            r"\[learner\.ddpg\.noise\] low = 'a': .*number",
        ),
        ("[learner.autocast]\nlow = 1\nhigh = 2", r"\[learner\.autocast\]: .*number"),
        ("[learner.autocast]\nchoices = ['bf17']", r"\[learner\.autocast\] choices\[0\] = 'bf17': "),
        ("[net.hidden]\nchoices = []", r"\[net\.hidden\] choices = \[\]: .*one or more"),
        ("[net.hidden]\nchoices = [8, 16, 8]", r"\[net\.hidden\] choices\[2\] = 8: .*twice"),
        ("[net.hidden]\nchoices = [8]\nlow = 2", r"\[net\.hidden\] low: .*choices"),
        ("[population.size]\nchoices = [0, 1]", r"\[population\.size\] choices\[0\]: population\.size = 0: .*2"),
        ("[learner.updates]\nlow = 1\nhigh = 9", r"\[learner\.updates\]: .*\[learner\.hindsight\.updates\] or .*ddpg"),
        ("[learner.ddpg.noise\n", r"TOML: "),
    ],
)
def test_what_is_wrong_is_named(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        space_of(text)
    assert str(refused.value).startswith("space.toml: ")


def test_a_value_that_fits_only_beside_others_may_be_searched() -> None:
    """A warm-up of 60,000 does not fit into the default replay, one of 8 generations holds it."""
    space = space_of("[replay.warmup]\nchoices = [100, 60000]\n[replay.generations]\nlow = 4\nhigh = 8")
    assert space is not None
    with pytest.raises(ConfigError, match=r"replay\.warmup = 60000"):
        with_settings(BASE, {"replay.warmup": 60_000}, TRIAL_SOURCE)
    found = with_settings(BASE, {"replay.warmup": 60_000, "replay.generations": 8}, TRIAL_SOURCE)
    assert (found.replay.warmup, found.replay.generations, found.seed) == (60_000, 8, BASE.seed)
