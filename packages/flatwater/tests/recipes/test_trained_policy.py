"""What was trained, in the field's forms: it takes what an environment gives and returns what an environment takes."""

import importlib.util
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces as gym

import flatwater as fw
from flatwater.algorithms.learner import forward_step
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.gymnasium_world import GymnasiumWorld
from flatwater.envs.wrapped.native_spaces import read_native
from flatwater.nets.config import ActorCriticConfig
from flatwater.nets.mlp import MLPActor, MLPCritic
from flatwater.nets.policy import build_statistics
from flatwater.nets.stack import Layout, init_, views
from flatwater.recipes.evolve.policy import build_champion
from flatwater.recipes.ppo.policy import PolicyModule, build_policy
from flatwater.runs.policy_export import export
from flatwater.runs.policy_file import read_policy
from flatwater.runs.trained_policy import TrainedPolicy
from flatwater.trainers.blocks.state import build_actor_critic
from flatwater_watch.errors import ConfigError

CPU = torch.device("cpu")


class Drawn(gymnasium.Env[Any, Any]):
    """An environment whose observations are drawn from its space, and which refuses actions that are not of its own."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), (action, self.action_space)
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps >= 4, False, {}


class Boat(Drawn):
    observation_space = gym.Dict(
        speed=gym.Box(-1, 1, (2,), np.float64), harbour=gym.Discrete(3, start=1), lamps=gym.MultiBinary(2)
    )
    action_space = gym.MultiDiscrete([3, 2], start=[1, 0])


class Nested(Drawn):
    observation_space = gym.Dict(
        inner=gym.Tuple((gym.Discrete(2), gym.Box(0, 1, (2, 2), np.float32))), at=gym.Box(0, 9)
    )
    action_space = gym.Box(np.array([-1, 0.1]), np.array([1, 0.7]), dtype=np.float64)


class Lake(Drawn):
    observation_space = gym.Discrete(5)
    action_space = gym.Discrete(3, start=-1)


class Screen(Drawn):
    observation_space = gym.Box(0, 255, (3, 4, 2), np.uint8)
    action_space = gym.Discrete(3)


def drawn_row(layout: Layout) -> dict[str, torch.Tensor]:
    block = torch.empty(1, layout.size)
    init_(block, layout, torch.Generator().manual_seed(1))
    return {name: weight[0] for name, weight in views(block.mul_(3), layout).items()}


def policy(env: type[Drawn], memory: int = 0) -> TrainedPolicy:
    world = GymnasiumWorld(env, env.__name__, WrappedConfig(), 1)
    config = ActorCriticConfig(rows=64, width=8, hidden=8, memory=memory, layers=(8,), observations="stretched")
    network = build_actor_critic(world.spaces, config, CPU)
    statistics = build_statistics(world.spaces.obs[0], network.measures, CPU) if network.measures else {}
    return build_policy(network, world.spaces, world.native, statistics | drawn_row(network.layout))


class Swing(Drawn):
    observation_space = gym.Box(-1, 1, (3,))
    action_space = gym.Box(-2, 2, (1,))


def champion(_env: type[Drawn] = Swing, *, drawn: bool = False) -> TrainedPolicy:
    world = GymnasiumWorld(Swing, "Swing", WrappedConfig(), 1)
    actor, critic = MLPActor(3, 1, (8, 8), drawn=drawn), MLPCritic(3, 1, (8, 8))
    critics = {f"critic.{n}.{name}": weight for n in range(2) for name, weight in drawn_row(critic.layout).items()}
    return build_champion(actor, world.spaces, world.native, drawn_row(actor.layout) | critics)


MADE: dict[type[Drawn], Callable[[type[Drawn]], TrainedPolicy]] = {
    Boat: policy,
    Nested: policy,
    Lake: policy,
    Screen: policy,
    Swing: champion,
}
every_env = pytest.mark.parametrize("env", MADE, ids=lambda env: env.__name__)


def vector_of(env: type[Drawn], count: int) -> Any:
    return gymnasium.vector.SyncVectorEnv([env] * count)


def one_by_one(space: gym.Space[Any], batch: Any, count: int) -> list[Any]:
    return list(gymnasium.vector.utils.iterate(gymnasium.vector.utils.batch_space(space, count), batch))


@every_env
def test_several_observations_are_each_by_itself(env: type[Drawn]) -> None:
    ours = MADE[env](env)
    for count in (4, 2):  # another number without a memory, which was refused once
        vector = vector_of(env, count)
        seen, _ = vector.reset(seed=3)
        single = [ours.act(each) for each in one_by_one(env.observation_space, seen, count)]
        np.testing.assert_array_equal(ours.act(seen), np.stack(single))
        values = [ours.value(each) for each in one_by_one(env.observation_space, seen, count)]
        np.testing.assert_allclose(ours.value(seen), values, rtol=1e-5, atol=1e-6)
        assert np.ndim(values[0]) == 0
        vector.step(ours.act(seen))  # each copy asserts that the action is of its space
        assert all(env.action_space.contains(action) for action in single)


@every_env
def test_tensors_are_read_as_arrays_are(env: type[Drawn]) -> None:
    ours, seen = MADE[env](env), vector_of(env, 3).reset(seed=1)[0]

    def as_tensors(given: Any) -> Any:
        if isinstance(given, dict):
            return {key: as_tensors(part) for key, part in given.items()}
        return tuple(map(as_tensors, given)) if isinstance(given, tuple) else torch.from_numpy(given)

    np.testing.assert_array_equal(ours.act(as_tensors(seen)), ours.act(seen))


@pytest.mark.long
@every_env
def test_the_module_gives_what_act_gives(env: type[Drawn]) -> None:
    """The module is an ordinary one: its outputs are those of `act`, before the space's own numbering is put on."""
    ours, seen = MADE[env](env), vector_of(env, 3).reset(seed=1)[0]
    native = ours._native
    assert native is not None
    rows = torch.from_numpy(native.rows(seen).obs)
    outputs = ours.module.eval()(rows)
    action = outputs[0] if isinstance(outputs, tuple) else outputs
    np.testing.assert_array_equal(native.to_env(action.detach().numpy()), ours.act(seen))

    program = torch.export.export(ours.module, (rows,)).module()(rows)
    torch.testing.assert_close(program[0] if isinstance(program, tuple) else program, action)


def test_weights_have_names_and_follow_a_change_of_the_module() -> None:
    ours, seen = policy(Lake), np.arange(5)
    assert "net.action.0.weight" in ours.module.state_dict()
    before = ours.act(seen)
    with torch.no_grad():
        ours.module.get_parameter("net.action.bias")[1] += 1e3
    assert (before != 0).any()
    assert (ours.act(seen) == 0).all()  # the position 1 of a list that begins with -1


def test_drawn_actions_follow_their_probabilities() -> None:
    ours = policy(Lake)
    rows = np.full(20_000, 2)
    _, logits = ours.module(torch.from_numpy(ours._native.rows(2).obs))  # type: ignore[union-attr]
    counts = np.bincount(ours.act(rows, deterministic=False) + 1, minlength=3) / len(rows)
    np.testing.assert_allclose(counts, logits[0].detach().softmax(0), atol=0.02)

    def draws(seed: int) -> list[int]:
        return list(ours.act(rows[:20], deterministic=False, generator=torch.Generator().manual_seed(seed)))

    assert draws(1) == draws(1) != draws(2)


def test_an_actor_that_draws_stays_within_its_bounds() -> None:
    seen = vector_of(Swing, 50).reset(seed=1)[0]
    draws = champion(drawn=True).act(seen, deterministic=False)
    assert (np.abs(draws) <= 2).all()
    assert not np.array_equal(draws, champion(drawn=True).act(seen))
    # DDPG and TD3 have no distribution, as elsewhere.
    np.testing.assert_array_equal(champion().act(seen, deterministic=False), champion().act(seen))


@pytest.mark.parametrize("memory", [0, 5])
def test_the_value_is_that_of_training(memory: int) -> None:
    ours, seen = policy(Boat, memory), vector_of(Boat, 3).reset(seed=1)[0]
    module = ours.module
    assert isinstance(module, PolicyModule)
    starts, before = torch.zeros(3, dtype=torch.bool), torch.zeros(2, 3, memory)
    rows = torch.from_numpy(ours._native.rows(seen).obs)  # type: ignore[union-attr]
    expected = forward_step(module.network, module.net.weights_by_name(), obs=rows, memory=before, starts=starts)
    np.testing.assert_array_equal(ours.value(seen), expected.value[0])
    np.testing.assert_array_equal(ours.value(seen), ours.value(seen))  # it remembers nothing new


def test_predict_hands_the_memory_out_and_act_keeps_it() -> None:
    ours, state = policy(Boat, 5), None
    vector = vector_of(Boat, 3)
    seen, _ = vector.reset(seed=1)
    for step in range(3):
        kept = ours.act(seen)
        action, state = ours.predict(seen, state, np.full(3, step == 0), deterministic=True)
        np.testing.assert_array_equal(action, kept)
        seen = vector.step(action)[0]
    assert state is not None
    assert [part.shape for part in state] == [(3, 5), (3, 5)]
    # Where an episode starts the state is forgotten: the same as none.
    fresh, _ = ours.predict(seen, None, None, deterministic=True)
    again, _ = ours.predict(seen, state, np.ones(3, np.bool_), deterministic=True)
    np.testing.assert_array_equal(again, fresh)
    with pytest.raises(ConfigError, match=r"obs has 1 agents, the policy remembers 3\. Call begin\(\) first"):
        ours.act(Boat().reset(seed=1)[0])


def test_agents_are_known_by_their_keys() -> None:
    """PettingZoo's dicts lack agents that have left; those that are left go on with their own memory."""
    ours, alone = policy(Boat, 5), policy(Boat, 5)
    first, second = ({name: Boat().reset(seed=seed + n)[0] for n, name in enumerate("abc")} for seed in (1, 5))
    actions = ours.act(first)
    assert [*actions] == ["a", "b", "c"]
    alone.act(first["b"])
    left = {"c": second["c"], "b": second["b"]}
    assert ours.value(left)["b"] == pytest.approx(float(alone.value(second["b"])), rel=1e-5)
    np.testing.assert_array_equal(ours.act(left)["b"], alone.act(second["b"]))
    with pytest.raises(ConfigError, match="begin"):
        ours.act(first | {"d": first["a"]})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.zeros(3), r"obs is a ndarray"),
        ({"speed": np.zeros(2), "harbour": 1}, r"no entry 'lamps'"),
        ({"speed": np.zeros(3), "harbour": 1, "lamps": np.zeros(2, np.int8)}, r"obs\['speed'\] is an array \[3\]"),
        ({"speed": np.zeros((4, 2)), "harbour": 1, "lamps": np.zeros(2, np.int8)}, "different numbers"),
        ({"speed": np.zeros(2), "harbour": 9, "lamps": np.zeros(2, np.int8)}, r"9\) is not in Discrete"),
    ],
)
def test_another_observation_is_refused_by_its_part(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        policy(Boat).act(given)


@every_env
def test_a_policy_goes_to_another_process_by_pickle(env: type[Drawn]) -> None:
    """Its reader of observations consists of functions that pickle refuses."""
    ours, seen = policy(env), env().reset(seed=3)[0]
    theirs = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(theirs.act(seen), ours.act(seen))
    assert theirs.observation_space == ours.observation_space


def test_what_a_reset_returns_is_told_from_its_observation() -> None:
    with pytest.raises(ConfigError, match=r"got a pair, as env.reset\(\) returns: give its first part"):
        policy(Boat).act(Boat().reset(seed=0))


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("number", [np.nan, -np.inf, 1e300])
def test_a_number_that_is_not_finite_is_refused_by_its_key_and_place(number: float) -> None:
    """It was answered with the first action, without a word; 1e300 is an infinity of the network's float32."""
    ours, seen = policy(Boat), vector_of(Boat, 3).reset(seed=1)[0]
    seen["speed"][2, 1] = number
    place = r"\['speed'\]\[1\] is (nan|-?inf)"
    for answer in (ours.act, ours.value, ours.predict):
        with pytest.raises(ConfigError, match=rf"^obs{place}, in observation 3 of 3: expected a finite.* --allow-nan$"):
            answer(seen)
    by_agent = {"a": Boat().reset(seed=1)[0], "b": {key: part[2] for key, part in seen.items()}}
    with pytest.raises(ConfigError, match=rf"^obs\['b'\]{place}: "):
        ours.act(by_agent)
    swings = champion().fresh()
    for rows in (swings, swings.on_rows()):
        with pytest.raises(ConfigError, match=r"^obs\[0\] is (nan|-?inf): "):
            rows.act(np.array([number, 0, 0], np.float32))


@pytest.mark.parametrize("flag", ["allowed", "refused"])
@pytest.mark.parametrize("recipe", ["ppo", "dqn"])
def test_a_policy_and_its_file_take_nan_where_its_run_did(recipe: str, flag: str, tmp_path: Path) -> None:
    allow_nan = flag == "allowed"
    sizes: dict[str, Any] = {"envs": 2, "block": 8} if recipe == "ppo" else {"steps": 16, "wrapped": {"steps": 12}}
    run = fw.train(recipe, run=tmp_path / "run", rounds=1, threads=1, allow_nan=allow_nan, quiet=True, **sizes)
    file = tmp_path / "policy.safetensors"
    fw.export(run.path, file)
    for ours in (fw.load(run.path), fw.load(file)):
        if allow_nan:
            assert ours.act(np.full(4, np.nan, np.float32)) in {0, 1}
        else:
            with pytest.raises(ConfigError, match=r"obs\[0\] is nan"):
                ours.act(np.full(4, np.nan, np.float32))


def test_a_mask_without_a_legal_choice_in_one_list_is_refused() -> None:
    """The first choice was taken. Where the game is over, `last()` of PettingZoo has a mask of zeros."""
    seen, ours = Boat().reset(seed=0)[0], policy(Boat)
    assert ours.act(seen, [0, 0, 1, 0, 1]).tolist() == [3, 1]
    for given in ([0, 0, 0, 1, 1], [1, 1, 1, 0, 0]):
        with pytest.raises(ConfigError, match="no legal choice"):
            ours.act(seen, given)
    assert ours.act(seen, [0, 0, 0, 0, 0]).shape == (2,)


@every_env
def test_a_file_of_weights_has_the_spaces_and_the_values(env: type[Drawn], tmp_path: Path) -> None:
    ours, file = MADE[env](env), tmp_path / "policy.safetensors"
    export(ours, file)
    again, seen = read_policy(file), vector_of(env, 3).reset(seed=1)[0]
    assert again.observation_space == env.observation_space
    assert again.action_space == env.action_space
    np.testing.assert_array_equal(again.act(seen), ours.act(seen))
    np.testing.assert_array_equal(again.value(seen), ours.value(seen))


@pytest.mark.parametrize(
    "observation",
    [
        {"space": "Discrete", "n": 1 << 60, "start": 0, "shape": [], "dtype": "int64"},
        {"space": "Box", "shape": [1 << 40], "dtype": "float32", "low": 0, "high": 1},
        {"space": "Box", "shape": [7], "dtype": "float32", "low": 0, "high": 1},
        {"space": "Box", "shape": [5], "dtype": "elephant", "low": 0, "high": 1},
        {"space": "Dict", "parts": [1]},
        {},
    ],
)
def test_spaces_in_a_file_that_cannot_be_are_refused(observation: dict[str, Any]) -> None:
    action = {"space": "Discrete", "n": 2, "start": 0, "shape": [], "dtype": "int64"}
    with pytest.raises(ValueError, match="env"):
        read_native({"form": "auto", "observation": observation, "action": action}, (5,))


@pytest.mark.skipif(importlib.util.find_spec("stable_baselines3") is None, reason="stable_baselines3 is not installed")
@pytest.mark.parametrize(("env", "memory"), [(Boat, 0), (Boat, 5), (Lake, 0), (Screen, 0), (Swing, 0)])
def test_the_evaluation_of_stable_baselines3_plays_it(env: type[Drawn], memory: int) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    ours = policy(env, memory) if memory else MADE[env](env)
    mean, deviation = evaluate_policy(ours, Monitor(env()), n_eval_episodes=3)
    assert (mean, deviation) == (4.0, 0.0)
