"""Images and networks of a user's in `ppo`: they learn, are held as planned, resumed exactly, saved and exported."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import flatwater as fw
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import command_class, main
from flatwater.config.mappings import from_mapping
from flatwater.envs.world import Spaces
from flatwater.named_imports import import_named_module
from flatwater.nets.config import ActorCriticConfig
from flatwater.nets.stack import init_, views
from flatwater.recipes.ppo.config import PpoRunConfig
from flatwater.recipes.ppo.run import compose
from flatwater.state.tree import nbytes
from flatwater.trainers.blocks.state import build_actor_critic
from flatwater_watch.errors import ConfigError

FILE = Path(__file__).with_name("own_nets.py")
EXAMPLE = Path(__file__).parents[4] / "examples" / "flatwater" / "catch.py"
TINY = ("--envs", "4", "--block", "8", "--evaluation.envs", "2", "--evaluation.every", "2", "--threads", "1")
TINY += ("--learner.epochs", "2", "--learner.minibatches", "2", "--wrapped.steps", "6", "--trackers")
KINDS = {
    "image": ("--env", "own_nets:Spot"),
    "impala": ("--env", "own_nets:Spot", "--policy.network", "impala"),
    "stack": ("--env", "own_nets:Stack"),
    "beside": ("--env", "own_nets:Beside"),
    "beside, with a memory": ("--env", "own_nets:Beside", "--policy.memory", "4", "--learner.unroll", "4"),
    "own": ("--env", "own_nets:Beside", "--policy.network", "own_nets:Eyes"),
    "layers": ("--env", "own_nets:Numbers", "--policy.activation", "silu", "--policy.heads", "shared"),
    "normalised": (
        *("--env", "own_nets:Beside", "--policy.observations", "normalised", "--rewards", "normalised"),
        *("--policy.activation", "relu", "--policy.heads", "shared", "--policy.memory", "0"),
    ),
    "own, normalised": (
        *(
            "--env",
            "own_nets:Numbers",
            "--policy.network",
            "own_nets:Plain",
            "--policy.observations",
            "normalised",
        ),
    ),
    "own, of numbers": ("--env", "own_nets:Numbers", "--policy.network", "own_nets:Plain"),
    "tied": ("--env", "own_nets:Numbered", "--policy.network", "own_nets:Tied"),
    "attention": ("--env", "own_nets:Numbered", "--policy.network", "own_nets:Attention"),
    "stocked": ("--env", "own_nets:Numbered", "--policy.network", "own_nets:Stocked"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with the files of environments and networks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for file in (FILE, EXAMPLE):
        monkeypatch.delitem(sys.modules, file.stem, raising=False)
        (tmp_path / file.name).write_text(file.read_text())
    return tmp_path


def read_config(*options: str) -> PpoRunConfig:
    config: PpoRunConfig = command_class(("train", "ppo")).read("train ppo", [*TINY, *options]).settings()
    return config


def train(run: str, rounds: int, *options: str) -> dict[str, object]:
    assert main(["train", "ppo", *TINY, "--rounds", str(rounds), "--run", run, *options]) == 0
    found: dict[str, object] = json.loads(Path(run, "result.json").read_text())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_planned_is_held(kind: str) -> None:
    run = compose(read_config(*KINDS[kind]))
    assert nbytes(run.trainer.run) == run.plan.owners


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "kind",
    [
        *("stocked", "own", "beside, with a memory", "normalised", "layers", "impala", "own, of numbers"),
        *("own, normalised", "stack", "tied", "attention"),
    ],
)
def test_resumed_it_ends_as_if_it_had_not_stopped(kind: str) -> None:
    whole = train("whole", 3, *KINDS[kind])
    train("cut", 1, *KINDS[kind])
    assert main(["resume", "cut", "--rounds", "3"]) == 0
    assert json.loads(Path("cut", "result.json").read_text()) == whole
    ends = [list_checkpoints(Path(run, "checkpoints"))[-1].leaves for run in ("whole", "cut")]
    assert ends[0] == ends[1]


def test_an_image_is_kept_as_bytes_and_read_as_shares_with_its_channels_first() -> None:
    run = compose(read_config(*KINDS["beside"])).trainer
    assert run.run.rollout["obs"].dtype == torch.uint8
    assert run.run.rollout["obs"].shape == (8, 4, 4 * (2 + 3) + 12 * 10 * 3)
    for phase in run.phases[:2]:
        for number in range(phase.steps()):
            phase.step_(number)
    network, row = run.setup.network, run.run.rollout["obs"][0, :1]
    assert network.encoder is not None
    numbers = network.read_numbers(row)
    assert numbers.tolist() == [[0.5, 0.0, 0.0, 0.0, 1.0]]
    seen = network.encoder.parts[-1]
    assert (seen.keys, seen.read_shape) == (("image",), (3, 12, 10))


def test_buffers_are_saved_and_only_learning_changes_them() -> None:
    trainer = compose(read_config(*KINDS["own"])).trainer
    kept = trainer.run.learner.statistics
    names = ("network.norm.running_mean", "network.norm.num_batches_tracked", "network.constant", "network.frozen")
    assert set(names) < set(kept)
    assert not any(name in kept for name in ("network.top.weight", "network.norm.weight"))
    for phase in trainer.phases:
        before = {name: kept[name].clone() for name in names}
        for number in range(phase.steps()):
            phase.step_(number)
        changed = {name for name in names if not torch.equal(kept[name], before[name])}
        assert changed == (set(names[:2]) if phase.name == "update" else set())
    assert kept["network.norm.num_batches_tracked"] == 2 * 2
    assert kept["network.frozen"].tolist() == [1] * 4


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "kind",
    [
        *("own", "normalised", "image", "impala", "layers", "own, normalised", "beside, with a memory", "tied"),
        *("attention", "stocked"),
    ],
)
def test_a_trained_policy_is_loaded_and_exported(kind: str) -> None:
    train("run", 1, *KINDS[kind])
    policy = fw.load("run")
    assert main(["export", "run", "--to", "policy.pt2"]) == 0
    assert main(["export", "run", "--to", "policy.safetensors"]) == 0
    env = getattr(import_named_module("own_nets"), KINDS[kind][1].partition(":")[2])()
    seen = [env.reset(seed=0)[0], *(env.step(0)[0] for _ in range(3))]
    again = fw.load("policy.safetensors")
    assert [again.act(each) for each in seen] == [policy.act(each) for each in seen]
    assert again.value(seen[0]) == policy.value(seen[0])


def test_a_weight_of_several_layers_is_one_weight() -> None:
    network = compose(read_config(*KINDS["tied"])).trainer.setup.network
    weights = {name for name in network.layout.weights if name.startswith("network.")}
    assert weights == {"network.first.weight", "network.first.bias", "network.second.bias"}


def test_a_transformer_gives_the_same_features_in_both_modes() -> None:
    network = compose(read_config(*KINDS["attention"])).trainer.setup.network
    assert network.encoder is not None
    rng, layout = torch.Generator().manual_seed(0), network.encoder.layout
    weights = {name: torch.randn(weight.shape, generator=rng) for name, weight in layout.weights.items()}
    with torch.no_grad():
        acting, learning = (
            network.encoder(weights, torch.linspace(-2, 2, 18).view(3, 6), None, learning=mode)
            for mode in (False, True)
        )
    assert torch.equal(acting, learning)
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_compiled_module_is_refused_as_it_could_not_be_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo", *TINY, *KINDS["own"], "--learner.compile"]) == 2
    assert "would not be resumed bit for bit" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            "own_nets:Faulty",
            "Faulty: forward() raised ValueError: no such thing as a forward of 2 (own_nets.py, line",
        ),
        ("own_nets:Wide", "expected features float32 [2, F] of 2 observations, got torch.float32 [1, 2, 6]"),
        ("own_nets:Drops", "draws random numbers"),
        ("own_nets:Looks", "cannot be planned on the meta device"),
        ("own_nets:Keeps", "register_buffer"),
        ("own_nets:Swaps", "self.count.copy_(...)"),
        ("own_nets:Doubles", "expected float32"),
        ("own_nets:LateDrops", "draws random numbers"),
        ("own_nets:Rolls", "draws random numbers"),
        ("own_nets:Counts", "changes self.steps"),
        ("own_nets:Fills", "changes self.last,"),
        ("own_nets:Remembers", "gives other features or buffers for the same observations"),
        ("own_nets:OwnRolls", "gives other features or buffers for the same observations"),
        ("own_nets:Scribbles", "clone()"),
        ("own_nets:Aliases", "row is in the memory of table"),
        ("own_nets:Compiles", "calls torch.compile"),
        ("own_nets:Mixes", "features of an observation change with the others of its batch"),
        ("own_nets:Pairs", "forward() raised RuntimeError: shape '[2, 6]' is invalid for input of size 18"),
        ("own_nets:Halves", "expected features float32 [3, F] of 3 observations, got torch.float32 [2, 9]"),
        ("own_nets:Featureless", "expected features float32 [2, F] of 2 observations, got torch.float32 [2, 0]"),
        ("own_nets:ToNumPy", "cannot be planned on the meta device"),
        ("own_nets:Scripted", "module 'inner' is of torch.jit"),
        ("own_nets:Sparse", "module 'table': expected sparse=False"),
        ("own_nets:Wants", "cannot be called with the observation space alone"),
        ("own_nets:MADE", "a function that makes one for an observation space, got a Linear"),
        ("own_nets:not_a_module", "expected a torch.nn.Module"),
        ("own_nets:Eyes", "raised"),
        ("own_nets:Nothing", "cannot be imported"),
        ("resnet", "expected nature, impala or package.module:Class"),
    ],
)
def test_a_network_that_cannot_be_trained_is_refused_in_a_sentence(
    network: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "ppo", *TINY, "--env", "own_nets:Numbers", "--policy.network", network]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "network" in told
    assert said in told


def test_a_class_is_given_as_it_is_and_refused_where_no_resumed_run_would_find_it() -> None:
    own_nets = import_named_module("own_nets")
    settings = {"env": "own_nets:Numbers", "policy": {"network": own_nets.Plain}}
    assert from_mapping(PpoRunConfig, settings, "here").policy.network == "own_nets:Plain"

    class Inside(own_nets.Plain):  # type: ignore[misc, name-defined]
        pass

    with pytest.raises(ConfigError, match=r"policy\.network = .*Inside.*Move it to the top of a module"):
        from_mapping(PpoRunConfig, {"policy": {"network": Inside}}, "here")
    made = partial(own_nets.Plain)
    for given, cls in ((torch.nn.Linear(2, 2), "Linear"), (made, "partial")):
        with pytest.raises(ConfigError, match=f"got an object of the class {cls}. Give the class, or a function"):
            from_mapping(PpoRunConfig, {"policy": {"network": given}}, "here")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rounds"), [("image", 12), ("own", 30)])
def test_it_learns_from_images(kind: str, rounds: int) -> None:
    more = ("--block", "32", "--learner.lr", "1e-3", "--evaluation.envs", "16", "--evaluation.every", str(rounds))
    players = train("run", rounds, *KINDS[kind], *more)["players"]
    assert isinstance(players, dict)
    assert players["policy"]["return"] > 5 > players["random"]["return"]


@pytest.mark.parametrize("kind", ["image", "own"])
def test_a_network_reads_each_observation_of_a_block_once(kind: str) -> None:
    trainer = compose(read_config(*KINDS[kind], "--wrapped.steps", "100")).trainer
    encoder, calls = trainer.setup.network.encoder, list[int]()
    assert encoder is not None
    encoder.module.register_forward_pre_hook(lambda *_: calls.append(1))
    collect = next(phase for phase in trainer.phases if phase.name == "collect")
    for step in range(collect.steps()):
        collect.step_(step)
    assert len(calls) == collect.steps() + 1, "for each step, and for the value behind the last"


@pytest.mark.slow
def test_catch_is_solved_by_the_defaults() -> None:
    words = ("train", "ppo", "--env", "catch:Catch", "--wrapped.steps", "12", "--rounds", "60", "--threads", "1")
    assert main([*words, "--run", "run", "--quiet", "--evaluation.envs", "64"]) == 0
    players = json.loads(Path("run", "result.json").read_text())["players"]
    assert players["policy"]["return"] > 0.9 > players["random"]["return"]


def test_first_actions_have_the_deviation_that_is_asked_and_plain_numbers_are_read_as_they_are() -> None:
    spaces = Spaces(1, 1, "vector", (3,), ("push",), steps=9, bounds=((-2.0, 2.0),), measures=(0, 1, 2))
    config = ActorCriticConfig(memory=0, deviation=0.25, observations="plain")
    network = build_actor_critic(spaces, config, torch.device("cpu"))
    block = torch.empty(1, network.layout.size)
    init_(block, network.layout, torch.Generator().manual_seed(1))
    weights = {name: rows[0] for name, rows in views(block, network.layout).items()}
    obs = torch.tensor([[100.0, -1e-3, 0.0]])
    assert torch.equal(network.embed_observation(weights, obs[None]), obs[None])
    step = network.run_step(weights, obs, torch.zeros(2, 1, 0), torch.zeros(1, dtype=torch.bool))
    policy = network.actions.distribution(step.logits)
    shift = policy.sample(torch.ones(1, 1)) - policy.sample(torch.zeros(1, 1))
    torch.testing.assert_close(shift, torch.full((1, 1), 0.25 * 2))  # in units of half the range
    with pytest.raises(ConfigError, match=r"policy\.deviation = 0\.25"):
        ActorCriticConfig(memory=4, deviation=0.25)
