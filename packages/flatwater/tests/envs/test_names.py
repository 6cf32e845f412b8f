"""An environment's name: as Gymnasium has it, or the nearest that there is, told before torch is imported."""

import subprocess
import sys
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.world import World
from flatwater.envs.worlds import build_world
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.gymnasium_world import GymnasiumWorld
from flatwater.envs.wrapped.named_env import make_named_env
from flatwater_watch.errors import ConfigError

ASKED = """
import sys
from flatwater.cli.main import main
code = main(["{command}", "ppo", "--env", "{name}"])
print(code, "torch" in sys.modules)
"""


def build(name: str) -> World:
    return build_world(name, envs=2, foraging=ForagingConfig(), wrapped=WrappedConfig())


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1", "MiniGrid-Empty-5x5-v0", "FrozenLake-v1"])
def test_a_bare_id_is_the_environment_that_gymnasium_has(env_id: str) -> None:
    bare, spelled = build(env_id), build(f"gymnasium:{env_id}")
    assert type(bare) is type(spelled)
    assert bare.spaces == spelled.spaces


def test_gymnasiums_own_form_imports_the_module_that_registers_the_id() -> None:
    assert isinstance(build("minigrid:MiniGrid-Empty-5x5-v0"), GymnasiumWorld)


def test_an_id_of_a_module_needs_no_version_where_it_has_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tetris_gymnasium/Tetris` was taken for the name of a class."""
    spec = EnvSpec("boats/Boat", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
    monkeypatch.setitem(gymnasium.registry, "boats/Boat", spec)
    assert isinstance(build("gymnasium.envs.classic_control:boats/Boat"), GymnasiumWorld)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("gymnasium:cartpole", "CartPole-v1"),
        ("Taxi-v3", "Taxi-v4"),
        ("MiniGrid-Emty-5x5-v0", "MiniGrid-Empty-5x5-v0"),
        ("forrage", "forage"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f'Did you mean "{meant}"'):
        build(name)


def test_an_id_whose_package_is_missing_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match="pip install ale-py"):
        build("ALE/Pong-v5")


def test_what_an_environment_lacks_is_told_in_its_own_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """CarRacing's `pip install swig` was followed by an advice to give another ID."""
    lack = "Boats are not installed: pip install boats"

    def make_boat(**_: object) -> gymnasium.Env[Any, Any]:
        raise gymnasium.error.DependencyNotInstalled(lack)

    monkeypatch.setitem(gymnasium.registry, "Boat-v0", EnvSpec("Boat-v0", entry_point=make_boat))
    with pytest.raises(ConfigError) as refusal:
        make_named_env("Boat-v0")
    assert str(refusal.value) == f"Boat-v0: {lack}"


@pytest.mark.few(2)
@pytest.mark.parametrize("command", ["train", "plan"])
@pytest.mark.parametrize("name", ["CartPol-v1", "nowhere:Boat", "pettingzoo:nowhere"])
def test_a_wrong_name_is_told_before_torch_is_imported(command: str, name: str) -> None:
    script = ASKED.format(command=command, name=name)
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["2", "False"]
    assert f"env = '{name}'" in told.stderr
