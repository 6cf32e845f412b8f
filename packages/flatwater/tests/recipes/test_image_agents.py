"""Images in `dqn` and `sac`: replayed as bytes, held as planned, resumed exactly, saved, exported and learned from."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import flatwater as fw
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import command_class, main
from flatwater.named_imports import import_named_module
from flatwater.nets.image_values import ImageValues, image_values
from flatwater.nets.observation import Part
from flatwater.nets.stack import init_, views
from flatwater.recipes.evolve.run import EvolveRun, compose
from flatwater.state.tree import nbytes

FILE = Path(__file__).with_name("own_nets.py")
TINY = ("--steps", "30", "--net.hidden", "8", "--net.layers", "1", "--evaluation.episodes", "2", "--threads", "1")
TINY += ("--learner.batch-size", "8", "--replay.warmup", "16", "--replay.capacity", "60", "--wrapped.steps", "9")
KINDS = {
    "dqn": ("dqn", "--env", "own_nets:Spot", "--learner.duelling", "--learner.double"),
    "dqn, two with impala": (
        *("dqn", "--env", "own_nets:Stack", "--net.network", "impala", "--population.size", "2"),
        "--replay.prioritised",
    ),
    "sac, numbers beside": ("sac", "--env", "own_nets:Beside"),
}
PARTS = (Part(("body",), (3,)), Part(("image",), (12, 10, 3), (2,), (0.0,), (255.0,)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with the file of the environments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, FILE.stem, raising=False)
    (tmp_path / FILE.name).write_text(FILE.read_text())
    return tmp_path


def compose_agent(recipe: str, *options: str) -> EvolveRun:
    return compose(command_class(("train", recipe)).read(f"train {recipe}", [*TINY, *options]).settings())


def train(run: str, rounds: int, recipe: str, *options: str) -> dict[str, object]:
    words = ["train", recipe, *TINY, "--rounds", str(rounds), "--run", run, "--quiet", "--trackers"]
    assert main([*words, *options]) == 0
    found: dict[str, object] = json.loads(Path(run, "result.json").read_text())
    return found


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_planned_is_held_and_the_replay_holds_bytes(kind: str) -> None:
    run = compose_agent(*KINDS[kind])
    assert nbytes(run.trainer.run) == run.plan.owners
    stored = run.trainer.run.ring.observation
    assert stored.dtype == run.trainer.run.coming.dtype == torch.uint8
    assert stored.shape[1:] == run.trainer.setup.spaces.obs
    assert isinstance(run.trainer.setup.nets.actor, ImageValues)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_resumed_it_ends_as_if_it_had_not_stopped(kind: str) -> None:
    whole = train("whole", 3, *KINDS[kind])
    train("cut", 1, *KINDS[kind])
    assert main(["resume", "cut", "--rounds", "3", "--quiet"]) == 0
    assert json.loads(Path("cut", "result.json").read_text()) == whole
    ends = [list_checkpoints(Path(run, "checkpoints"))[-1].leaves for run in ("whole", "cut")]
    assert ends[0] == ends[1]


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("kind", KINDS)
def test_its_policy_is_used_as_any_other(kind: str) -> None:
    train("run", 1, *KINDS[kind])
    assert main(["evaluate", "run", "--holdout"]) == 0
    assert main(["export", "run", "--to", "policy.pt2"]) == 0
    assert main(["export", "run", "--to", "policy.safetensors"]) == 0
    policy, again = fw.load("run"), fw.load("policy.safetensors")
    env = getattr(import_named_module("own_nets"), KINDS[kind][2].partition(":")[2])()
    seen = [env.reset(seed=0)[0], *(env.step(0)[0] for _ in range(3))]
    assert [again.act(each) for each in seen] == [policy.act(each) for each in seen]
    assert np.allclose([again.value(each) for each in seen], [policy.value(each) for each in seen])


def test_values_of_several_members_are_those_of_each_alone() -> None:
    net = image_values(PARTS, "nature", 4, (8,))
    block = torch.zeros(3, net.layout.size)
    init_(block, net.layout, torch.Generator().manual_seed(0))
    rows = torch.randint(256, (3, 5, 4 * 3 + 360), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    rows[..., : 4 * 3] = torch.randn(3, 5, 3, generator=torch.Generator().manual_seed(2)).view(torch.uint8)
    together = net.values(views(block, net.layout), rows)
    for p in range(3):
        alone = net.values(views(block[p : p + 1], net.layout), rows[p : p + 1])
        torch.testing.assert_close(together[p : p + 1], alone, rtol=1e-5, atol=1e-5)


def test_first_weights_have_the_law_of_torchs_own_layers() -> None:
    net = image_values(PARTS, "nature", 4, (8,))
    block = torch.zeros(1, net.layout.size)
    init_(block, net.layout, torch.Generator().manual_seed(0))
    named = views(block, net.layout)
    for name, module in net.encoder.module.named_modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
            bound = module.weight[0].numel() ** -0.5
            for part in ("weight", "bias"):
                drawn = named[f"network.{name}.{part}"]
                assert 0.8 * bound < float(drawn.abs().max()) <= bound, f"{name}.{part}"


def test_images_are_vectors_where_that_is_asked_for_and_compiling_them_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = compose_agent("dqn", "--env", "own_nets:Spot", "--wrapped.form", "vector")
    assert run.trainer.setup.spaces.obs == (12 * 10 * 3,)
    assert main(["train", "dqn", "--env", "own_nets:Spot", "--learner.compile"]) == 2
    assert "learner.compile" in capsys.readouterr().err


@pytest.mark.slow
def test_dqn_learns_from_images() -> None:
    rates = (
        "--learner.lr",
        "1e-3",
        "--learner.tau",
        "1",
        "--learner.target-every",
        "50",
        "--learner.epsilon.ends",
        "800",
    )
    more = ("--steps", "1500", "--replay.capacity", "2000", "--learner.batch-size", "32", "--evaluation.episodes", "16")
    players = train("run", 1, "dqn", "--env", "own_nets:Spot", *more, *rates)["players"]
    assert isinstance(players, dict)
    assert players["policy"]["return"] > 5 > players["random"]["return"]
