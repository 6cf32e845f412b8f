"""A fork goes on from another run's exact state: without changes it is the resumed run; the other is only read."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import TINY_GROW, TINY_PPO, assert_same, newest_leaves, records

import flatwater as fw
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import main
from flatwater.reports.page import run_page
from flatwater.reports.records import read_run
from flatwater.rundir.listing import list_runs
from flatwater_watch.errors import CheckpointError, ConfigError

Train = Callable[..., Path]
PLANETS = """
from gymnasium.envs.classic_control import CartPoleEnv


class Earth(CartPoleEnv):
    pass


class Mars(CartPoleEnv):
    def __init__(self, **options):
        super().__init__(**options)
        self.gravity = 3.7
"""


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of PPO, three blocks long."""
    folder = tmp_path_factory.mktemp("parents") / "parent"
    assert main(["train", "ppo", *TINY_PPO, "--rounds", "3", "--run", str(folder), "--quiet"]) == 0
    return folder


def leaves_at(run: Path, round_: int) -> dict[str, str]:
    """Leaf -> hash, of the checkpoint after a round."""
    manifest = next(m for m in list_checkpoints(run / "checkpoints") if (m.round, m.step) == (round_, 0))
    return {leaf.path: leaf.sha256 for leaf in manifest.leaves}


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_forked_without_changes_is_resumed_and_the_parent_is_only_read(parent: Path, tmp_path: Path) -> None:
    before = contents(parent)
    resumed = shutil.copytree(parent, tmp_path / "resumed")
    assert main(["resume", str(resumed), "--rounds", "5", "--quiet"]) == 0
    assert main(["fork", str(parent), "--rounds", "5", "--run", "forked", "--quiet"]) == 0
    assert_same(resumed, tmp_path / "forked")
    assert contents(parent) == before


@pytest.mark.long
def test_so_is_a_population_on_a_market(train: Train, tmp_path: Path) -> None:
    first = train("first", "--rounds", "1", algorithm="td3")
    resumed = shutil.copytree(first, tmp_path / "resumed")
    assert main(["resume", str(resumed), "--rounds", "2", "--quiet"]) == 0
    assert main(["fork", str(first), "--rounds", "2", "--run", "forked", "--quiet"]) == 0
    assert_same(resumed, tmp_path / "forked")


@pytest.mark.slow
def test_so_are_networks_that_grow(tmp_path: Path) -> None:
    assert main(["train", "grow", *TINY_GROW, "--rounds", "1", "--run", "first", "--quiet"]) == 0
    resumed = shutil.copytree("first", tmp_path / "resumed")
    assert main(["resume", str(resumed), "--rounds", "2", "--quiet"]) == 0
    assert main(["fork", "first", "--rounds", "2", "--run", "forked", "--quiet"]) == 0
    assert_same(resumed, tmp_path / "forked")


def test_a_fork_begins_with_the_parent_s_leaves_and_goes_on_by_its_own_settings(
    parent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = fw.fork(parent, run="same", rounds=4, quiet=True)
    other = fw.fork(fw.TrainedRun(parent), run="other", rounds=4, learner={"lr": 1e-4}, quiet=True)
    assert leaves_at(other.path, 3) == leaves_at(parent, 3)
    assert newest_leaves(other.path) != newest_leaves(same.path)
    assert records(other.path / "metrics.jsonl")[:3] == records(parent / "metrics.jsonl")
    changed = {"learner.lr": [1e-3, 1e-4], "rounds": [3, 4]}
    assert json.loads((other.path / "origin.json").read_text()) == {
        "parent": str(parent),
        "round": 3,
        "changed": changed,
    }
    said = f"forked from {parent} after round 3: learner.lr 0.001 -> 0.0001"
    assert said in run_page(read_run(other.path)).replace("&gt;", ">")
    assert [said in line.origin for line in list_runs(tmp_path)] == [False, True]
    assert main(["runs", "."]) == 0
    assert "learner.lr 0.001 -> 0.0001" in capsys.readouterr().out
    other.resume(5, quiet=True)
    assert len(other.metrics["round"]) == 5


def test_an_earlier_checkpoint_can_be_taken(parent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fork", str(parent), "--checkpoint", "2", "--run", "forked", "--quiet"]) == 0
    assert newest_leaves(Path("forked")) == newest_leaves(parent)
    assert main(["fork", str(parent), "--checkpoint", "9", "--rounds", "12"]) == 2
    assert "--checkpoint 9: expected 1 or 2 or 3" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--learner.lr", "1e-4", "--envs", "4"), "--envs: "),
        (("--block", "16", "--policy.memory", "8"), "--block, --policy.memory: "),
        (("--env", "gymnasium:Acrobot-v1"), "--env: "),
        (("--rounds", "3"), "rounds = 3: "),
        (("--student.layers", "3"), "--student.layers: no setting has this name: expected policy"),
    ],
)
def test_settings_that_change_the_leaves_or_train_nothing_are_refused_by_name(
    parent: Path, options: tuple[str, ...], names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fork", str(parent), "--rounds", "5", *options, "--run", "forked"]) == 2
    assert f"error: {names}" in capsys.readouterr().err
    assert not Path("forked").exists()


def test_another_seed_begins_other_draws_with_the_same_weights(parent: Path) -> None:
    forked = fw.fork(parent, run="forked", rounds=4, seed=7, quiet=True).path
    begun, own = leaves_at(parent, 3), leaves_at(forked, 3)
    different = {path for path in begun if own[path] != begun[path]}
    assert different
    assert {path.partition(".")[0] for path in different} <= {"generators", "learner"}
    assert "learner.block" not in different


@pytest.mark.long
def test_a_rate_in_the_state_is_the_new_one_where_it_was_changed(train: Train) -> None:
    first = train("first", "--rounds", "1")
    forked = fw.fork(first, run="forked", rounds=2, evolution={"mutation_rate": 0.3}, quiet=True).path
    rates = [record["mutation/rate"] for record in records(forked / "metrics.jsonl")]
    assert rates[1] == pytest.approx(0.3)


@pytest.mark.long
def test_another_environment_of_the_same_spaces_begins_new_episodes_and_is_as_exact_as_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "planets.py").write_text(PLANETS)
    options = [*TINY_PPO, "--rounds", "1", "--trackers", "--quiet"]
    assert main(["train", "ppo", *options, "--env", "planets:Earth", "--run", "first"]) == 0
    assert main(["fork", "first", "--env", "planets:Mars", "--rounds", "2", "--run", "forked"]) == 0
    assert "new episodes begin in round 2" in " ".join(capsys.readouterr().out.split())
    assert not Path("forked/not_exact.json").exists()
    shutil.copytree("forked", "parted")
    assert main(["resume", "forked", "--rounds", "4", "--quiet"]) == 0
    for rounds in ("3", "4"):
        assert main(["resume", "parted", "--rounds", rounds, "--quiet"]) == 0
    assert_same(Path("forked"), Path("parted"))


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("warm", [False, True])
def test_a_fork_killed_before_its_first_checkpoint_begins_at_its_parent_s(parent: Path, warm: bool) -> None:  # noqa: FBT001
    if warm:
        parent = fw.train("ppo", config=parent / "config.toml", from_run=parent, run="warm", quiet=True).path
    whole = fw.fork(parent, run="whole", rounds=4, learner={"lr": 1e-4}, quiet=True).path
    killed = Path("killed")
    killed.mkdir()
    for name in ("config.toml", "origin.json"):
        shutil.copy(whole / name, killed / name)
    fw.resume(killed, quiet=True)
    assert_same(whole, killed)


@pytest.mark.long
def test_a_new_run_where_a_fork_was_killed_before_it_began_is_no_fork(parent: Path) -> None:
    fork = fw.fork(parent, run="fork", rounds=4, quiet=True).path
    Path("new").mkdir()
    shutil.copy(fork / "origin.json", "new/origin.json")
    assert not (fw.train("ppo", config=parent / "config.toml", run="new", quiet=True).path / "origin.json").exists()


def test_what_is_no_setting_is_refused(parent: Path) -> None:
    with pytest.raises(ConfigError, match=r"learner\.rl: no setting"):
        fw.fork(parent, rounds=4, learner={"rl": 1e-4}, quiet=True)


def test_settings_that_were_edited_in_the_file_are_no_settings_of_the_checkpoint(parent: Path, tmp_path: Path) -> None:
    edited = shutil.copytree(parent, tmp_path / "edited")
    config = (edited / "config.toml").read_text()
    (edited / "config.toml").write_text(config.replace("lr = 0.001", "lr = 0.002"))
    with pytest.raises(CheckpointError, match=r"learner\.lr: 0\.001 in the checkpoint, 0\.002 now"):
        fw.fork(edited, rounds=4, quiet=True)
