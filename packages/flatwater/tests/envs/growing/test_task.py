"""A task of one's own: what a function may return, what follows from it, and what is said of the rest."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from flatwater.envs.growing.config import FitConfig, GrowingConfig, HostConfig
from flatwater.envs.growing.pool import build_envs
from flatwater.envs.growing.simulator import observe, reset_, step_
from flatwater.envs.growing.spaces import HEADS
from flatwater.envs.growing.task import load_task, make_task
from flatwater.nets.hosts import ImageShape
from flatwater.state.tree import nbytes
from flatwater_watch.errors import ConfigError

CPU, META = torch.device("cpu"), torch.device("meta")
LABELS = np.arange(60) % 4


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random((60, *shape))


@pytest.mark.parametrize(
    ("shape", "seen"),
    [
        ((3, 6, 5), ImageShape(3, 6, 5, 4)),
        ((6, 5), ImageShape(1, 6, 5, 4)),
        ((7,), ImageShape(1, 1, 7, 4)),
    ],
)
@pytest.mark.parametrize("kind", ["conv", "mlp"])
def test_sizes_follow_from_the_images(shape: tuple[int, ...], seen: ImageShape, kind: str) -> None:
    task = make_task((images(*shape), LABELS), CPU)
    assert task.image_shape == seen
    config = GrowingConfig(
        steps=2,
        host=HostConfig(kind=kind, channels=(2, 4, 4), hidden=(6, 6, 6), rank=2),
        fit=FitConfig(updates=1, batch_size=4),
    )
    envs = build_envs(config, count=3, data=task, device=CPU)
    reset_(envs, torch.arange(3))
    for _ in range(2):
        reward = step_(envs, torch.zeros(3, len(HEADS), dtype=torch.int64))
    assert reward.isfinite().all()
    assert observe(envs).isfinite().all()
    planned = build_envs(config, count=3, data=make_task((images(*shape), LABELS), META), device=META)
    assert nbytes(planned) == nbytes(envs)


def test_a_split_is_always_alike() -> None:
    first, second = (make_task((images(4, 4), LABELS), CPU) for _ in range(2))
    assert torch.equal(first.valid_images, second.valid_images)
    assert (len(first.train_labels), len(first.valid_labels)) == (30, 30)
    own = make_task((images(4, 4)[:20], LABELS[:20], images(4, 4)[20:], LABELS[20:]), CPU)
    assert (len(own.train_labels), len(own.valid_labels)) == (20, 40)
    assert torch.equal(own.valid_labels, torch.tensor(LABELS[20:]))


def test_bytes_are_shares_of_255() -> None:
    seen = (images(4, 4) * 255).astype(np.uint8)
    task = make_task((seen[:20], LABELS[:20], seen[20:], LABELS[20:]), CPU)
    assert torch.equal(task.valid_images, torch.tensor(seen[20:].reshape(40, -1) / np.float32(255)))


def test_an_unknown_accuracy_is_that_of_guessing() -> None:
    envs = build_envs(GrowingConfig(), count=2, data=make_task((images(4, 4), LABELS), CPU), device=CPU)
    assert envs.measures.chance == 0.25


def test_the_digits_have_no_privilege() -> None:
    assert load_task("digits", META).image_shape == ImageShape(1, 8, 8, 10)
    assert load_task("flatwater.envs.growing.digits:digits", META).image_shape == ImageShape(1, 8, 8, 10)


WRONG = {
    "no arrays": (None, " 0 arrays"),
    "three arrays": ((images(4), LABELS, LABELS), " 3 arrays"),
    "images in five dimensions": ((images(1, 1, 2, 2), LABELS), r"got \(60, 1, 1, 2, 2\)"),
    "too few images": ((images(4)[:5], LABELS[:5]), "got 5$"),
    "a class too few": ((images(4), LABELS[:-1]), r"int64 \(59,\).*60|60.*int64 \(59,\)"),
    "classes that are shares": ((images(4), LABELS / 2), "float64"),
    "a class below 0": ((images(4), LABELS - 1), "got -1$"),
    "one class": ((images(4), LABELS * 0), "classes, .* 1$"),
    "a pixel that is no number": ((np.full((60, 4), np.nan), LABELS), "finite"),
    "images as text": ((np.full((60, 4), "x"), LABELS), "<U1"),
    "two sizes": ((images(4), LABELS, images(5), LABELS), r"\(4,\) .*\(5,\) to validate"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_learned_is_named(name: str) -> None:
    given, said = WRONG[name]
    with pytest.raises(ConfigError, match=said):
        make_task(given, CPU)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mnist", r"task = 'mnist': .*digits, or package\.module:function"),
        ("no_such_module:images", "No module named 'no_such_module'"),
        ("some_tasks:missing", "no attribute 'missing'"),
        ("some_tasks:NUMBER", "task = 'some_tasks:NUMBER': .* int"),
        ("some_tasks:empty", "task = 'some_tasks:empty': .*list of 0 arrays"),
    ],
)
def test_a_name_that_leads_to_no_task_is_named(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_tasks.py").write_text("NUMBER = 1\ndef empty(): return []\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=said):
        load_task(name, CPU)
    sys.modules.pop("some_tasks", None)
