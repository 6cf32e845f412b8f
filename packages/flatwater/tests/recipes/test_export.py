"""What was trained as one file: in each form the numbers are those of the original; a file of none is refused."""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import flatwater as fw
from flatwater.cli.main import main
from flatwater.envs.world import Spaces
from flatwater.nets.config import ActorCriticConfig
from flatwater.nets.mlp import MLPActor, MLPValues
from flatwater.nets.policy import build_statistics, update_running_stats_
from flatwater.nets.stack import Layout, init_, join_weights, views
from flatwater.recipes.evolve.policy import build_champion
from flatwater.recipes.ppo.policy import build_policy
from flatwater.runs.policy_export import ABOUT_FILE, PolicyExport, export, plan_export, write_exports
from flatwater.runs.policy_file import METADATA_KEY
from flatwater.runs.trained_policy import TrainedPolicy
from flatwater.trainers.blocks.state import build_actor_critic
from flatwater_watch.errors import ConfigError, DataError, MemoryLimitError, RunError

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="the extra is not installed: pip install 'flatwater[onnx]'",
)
CPU = torch.device("cpu")
BOUNDS = ((-2.0, 2.0), (0.0, 1.0))


def row(layout: Layout) -> Tensor:
    drawn = torch.empty(1, layout.size)
    init_(drawn, layout, torch.Generator().manual_seed(1))
    return drawn.mul_(3)


def champion(*, drawn: bool = False) -> TrainedPolicy:
    actor = MLPActor(5, 2, (8, 8), drawn=drawn)
    weights = {name: weight[0] for name, weight in views(row(actor.layout), actor.layout).items()}
    return build_champion(actor, Spaces(1, 1, "vector", (5,), ("0", "1"), 10, BOUNDS), None, weights)


def masked_values(*, drawn: bool = False) -> TrainedPolicy:
    actor = MLPValues(5, 4, (8, 8), duelling=not drawn, drawn=drawn, masked=True)
    weights = {name: weight[0] for name, weight in views(row(actor.layout), actor.layout).items()}
    return build_champion(actor, Spaces(1, 1, "vector", (5,), tuple("abcd"), 10, masked=True), None, weights)


def policy(
    memory: int,
    *,
    tokens: bool = False,
    numbers: bool = False,
    choices: tuple[int, ...] | None = None,
    measures: tuple[int, ...] = (),
    masked: bool = False,
) -> TrainedPolicy:
    spaces = Spaces(
        envs=1,
        agents=1,
        form="tokens" if tokens else "vector",
        obs=(7, 3) if tokens else (5,),
        actions=("left", "right") if numbers or choices else ("a", "b", "c"),
        steps=10,
        bounds=BOUNDS if numbers else None,
        choices=choices,
        measures=measures,
        masked=masked,
    )
    config = ActorCriticConfig(rows=64, width=8, hidden=8, memory=memory, layers=(8,), observations="stretched")
    network = build_actor_critic(spaces, config, CPU)
    named = views(row(network.layout), network.layout)
    statistics = build_statistics(5, measures, CPU) if measures else {}
    if measures:
        update_running_stats_(statistics, 0.3 * torch.randn(50, 5, generator=torch.Generator().manual_seed(3)))
    return build_policy(network, spaces, None, statistics | {name: weight[0] for name, weight in named.items()})


KINDS: dict[str, Callable[[], Any]] = {
    "evolve": champion,
    "evolve-sac": lambda: champion(drawn=True),
    "ppo": lambda: policy(0),
    "ppo-numbers": lambda: policy(0, numbers=True),
    "ppo-choices": lambda: policy(0, choices=(2, 4)),
    "ppo-memory": lambda: policy(6),
    "ppo-measures": lambda: policy(0, measures=(0, 1, 2, 3, 4)),
    "ppo-some-measures": lambda: policy(0, numbers=True, measures=(0, 3)),
    "teach": lambda: policy(6, tokens=True),
}


def random_inputs(kind: str, rows: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(2)
    if kind == "teach":
        return rng.integers(0, 256, (rows, 7, 3), np.uint8)
    return rng.normal(size=(rows, 5)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_a_policy_again_without_the_run(kind: str, tmp_path: Path) -> None:
    original, file = KINDS[kind](), tmp_path / "policy.safetensors"
    assert export(original, file) == 0
    again = fw.load(file)
    for step in range(3):
        seen = random_inputs(kind, 4) + (step if kind != "teach" else 0)
        assert np.array_equal(again.act(seen), original.act(seen))
    with safe_open(file, "pt") as opened:
        about = json.loads(opened.metadata()[METADATA_KEY])
        assert list(opened.keys())
        assert ("obs.mean" in opened.keys()) == ("measures" in kind)  # noqa: SIM118
    assert about["recipe"] == ("evolve" if kind.startswith("evolve") else "ppo")
    assert {"inputs", "outputs", "header", "format"} <= set(about)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_for_torch_acts_alike(kind: str, tmp_path: Path) -> None:
    original, file = KINDS[kind](), tmp_path / "policy.pt2"
    assert export(original, file) < 1e-6
    files = {ABOUT_FILE: ""}
    program = torch.export.load(file, extra_files=files).module()
    inputs = [*json.loads(files[ABOUT_FILE])["inputs"]]
    assert inputs[0] == "obs"
    seen = random_inputs(kind, 9)
    memory = (torch.zeros(2, 9, 6),) if "memory" in inputs else ()
    found = program(torch.from_numpy(seen), *memory)
    action = found if isinstance(found, Tensor) else found[0]
    assert action.numpy() == pytest.approx(original.act(seen), abs=1e-6)


@needs_onnx
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_for_onnx_acts_alike(kind: str, tmp_path: Path) -> None:
    import onnxruntime

    original, file = KINDS[kind](), tmp_path / "policy.onnx"
    assert export(original, file) < 1e-5
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map[METADATA_KEY])
    seen = random_inputs(kind, 9)
    fed = {"obs": seen} | ({"memory": np.zeros((2, 9, 6), np.float32)} if "memory" in about["inputs"] else {})
    assert list(fed) == list(about["inputs"])
    action, *_ = session.run(["action"], fed)
    assert action == pytest.approx(original.act(seen), abs=1e-5)


MASKED: dict[str, Callable[[], TrainedPolicy]] = {
    "ppo": lambda: policy(0, masked=True),
    "ppo-choices": lambda: policy(0, choices=(2, 4), masked=True),
    "ppo-memory": lambda: policy(6, masked=True),
    "dqn": masked_values,
    "sac": lambda: masked_values(drawn=True),
}
LENGTHS = {"ppo": (3,), "ppo-memory": (3,), "ppo-choices": (2, 4)}
"""Lengths of the lists of choices; 4 for the others."""


@pytest.mark.parametrize("kind", MASKED)
@pytest.mark.parametrize(
    "form",
    [
        "safetensors",
        pytest.param("pt2", marks=pytest.mark.slow),
        pytest.param("onnx", marks=[pytest.mark.slow, needs_onnx]),
    ],
)
def test_a_policy_with_masks_is_exported_and_reads_the_mask_as_its_second_input(
    kind: str, form: str, tmp_path: Path
) -> None:
    original, file, rng = MASKED[kind](), tmp_path / f"policy.{form}", np.random.default_rng(4)
    assert export(original, file) < 1e-5
    seen = random_inputs("ppo", 1000)
    masks = []
    for length in LENGTHS.get(kind, (4,)):
        legal = rng.random((1000, length)) < 0.5
        legal[np.arange(1000), rng.integers(length, size=1000)] = True
        masks.append(legal)
    mask = np.concatenate(masks, 1)
    known, _ = original.predict(seen, deterministic=True, action_masks=mask)
    fed = {"obs": seen, "action_mask": mask}
    fed |= {"memory": np.zeros((2, 1000, 6), np.float32)} if "memory" in kind else {}
    if form == "safetensors":
        found, _ = fw.load(file).predict(seen, deterministic=True, action_masks=mask)
    elif form == "pt2":
        program = torch.export.load(file).module()
        result = program(*(torch.from_numpy(array) for array in fed.values()))
        found = (result if isinstance(result, Tensor) else result[0]).numpy()
    else:
        import onnxruntime

        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        found = session.run(["action"], fed)[0]
    assert np.array_equal(found, known)
    free, _ = original.predict(seen, deterministic=True)
    assert not np.array_equal(free, known)
    first = known if known.ndim == 1 else known[:, 0]
    assert mask[np.arange(1000), first].all()


def test_of_several_policies_none_is_written_if_one_would_need_too_much_memory(tmp_path: Path) -> None:
    small = policy(0).to_export()
    large = replace(small, loading_bytes=1 << 30)
    budget = f"{(plan_export(small, '.safetensors', None).needed_bytes >> 20) + 512}MiB"
    with pytest.raises(MemoryLimitError):
        write_exports({tmp_path / "a.safetensors": small, tmp_path / "b.safetensors": large}, budget)
    assert not [*tmp_path.iterdir()]


class Drifting(nn.Module):
    """Another number at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, obs: Tensor) -> Tensor:
        self.calls += 1
        return obs[:, :2] + self.calls


class Unlike:
    """A policy whose weights are not what it acts by."""

    def to_export(self) -> PolicyExport:
        taken = champion().to_export()
        return PolicyExport(
            **{name: getattr(taken, name) for name in taken.__dataclass_fields__} | {"module": Drifting()}
        )


def test_what_differs_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"differs .*\.safetensors"):
        export(Unlike(), tmp_path / "policy.safetensors")
    assert not list(tmp_path.iterdir())


def spoil(file: Path, change: Callable[[dict[str, Any]], object], drop: str = "") -> None:
    with safe_open(file, "pt") as opened:
        about = json.loads(opened.metadata()[METADATA_KEY])
        tensors = {name: opened.get_tensor(name) for name in opened.keys() if name != drop}  # noqa: SIM118
    change(about)
    save_file(tensors, file, {METADATA_KEY: json.dumps(about)})


@pytest.mark.parametrize(
    ("change", "drop", "said"),
    [
        (lambda about: about.pop("format"), "", "format"),
        (lambda about: about.update(format="other"), "", r"format = 'other': .*'flatwater-policy-1'"),
        (lambda about: about.update(recipe="nothing"), "", "no recipe 'nothing'"),
        (lambda about: about.update(recipe="grow"), "", "recipe = 'grow': "),
        (lambda about: about["header"].update(obs="5"), "", "obs"),
        (
            lambda about: about["header"].update(obs=6),
            "",
            r"0\.weight.*(torch\.float32 \[5, 8\]).*\[6, 8\]|0\.weight.*\[6, 8\].*(torch\.float32 \[5, 8\])",
        ),
        (lambda _: None, "0.bias", r"0\.bias.* none"),
    ],
)
def test_a_file_that_describes_no_policy_is_refused(
    change: Callable[[dict[str, Any]], object], drop: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "policy.safetensors"
    export(champion(), file)
    spoil(file, change, drop)
    with pytest.raises(DataError, match=said) as refused:
        fw.load(file)
    assert str(file) in str(refused.value)


def test_other_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.safetensors"
    save_file({"a": torch.zeros(1)}, file)
    with pytest.raises(DataError, match="metadata"):
        fw.load(file)
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(DataError, match=r"whole \.safetensors file"):
        fw.load(file)
    program = tmp_path / "x.pt2"
    program.write_bytes(b"PK")
    with pytest.raises(ConfigError, match=r"x\.pt2: .*torch\.export\.load"):
        fw.load(program)
    with pytest.raises(ConfigError, match=r"x\.h5: .*\.pt2 or \.onnx or \.safetensors"):
        export(champion(), tmp_path / "x.h5")
    assert main(["export", str(file), "--to", str(tmp_path / "x.h5")]) == 2
    assert ".pt2 or .onnx or .safetensors" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ValueError, match="got none"):
        join_weights({}, MLPActor(5, 2, (8, 8)).layout)


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is not None, reason="the extra is installed")
def test_onnx_without_its_packages_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"flatwater\[onnx\]"):
        export(champion(), tmp_path / "x.onnx")
