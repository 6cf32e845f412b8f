"""A run that was stopped, in whatever way, and resumed is the run that was not."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import SMALL_PPO

import flatwater as fw
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.checkpoints.manifest import encode_manifest, read_manifest
from flatwater.cli.main import main
from flatwater.runs.run import Run
from flatwater.trainers.evaluator import EpisodeEvaluator
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.store import save_panel
from flatwater_watch.files.directory import write_object

Train = Callable[..., Path]
Same = Callable[[Path, Path], None]


def test_two_generations_and_two_more_are_four(train: Train, same: Same) -> None:
    whole = train("whole", "--rounds", "4")
    parted = train("parted", "--rounds", "2")
    assert main(["resume", str(parted), "--rounds", "4"]) == 0
    same(whole, parted)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["td3", pytest.param("sac", marks=pytest.mark.slow)])
def test_with_every_option_that_keeps_state(train: Train, same: Same, algorithm: str) -> None:
    options = ("--replay.prioritised", "--env.account-observation", "--rounds", "3")
    whole = train("whole", *options, "--evolution.plateau-rounds", "1", algorithm=algorithm)
    parted = train("parted", *options, "--evolution.plateau-rounds", "1", "--rounds", "1", algorithm=algorithm)
    assert main(["resume", str(parted), "--rounds", "3"]) == 0
    same(whole, parted)


@pytest.mark.long
def test_a_run_killed_before_its_first_checkpoint_begins_at_the_start(
    train: Train, same: Same, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    whole = train("whole", "--rounds", "2")
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / "config.toml").write_bytes((whole / "config.toml").read_bytes())
    (killed / "metrics.jsonl").touch()
    assert main(["resume", str(killed)]) == 0
    assert "before its first checkpoint" in capsys.readouterr().out
    same(whole, killed)


@pytest.mark.slow
@pytest.mark.usefixtures("painted")
def test_a_run_killed_between_its_last_generation_and_its_result_is_completed(train: Train, same: Same) -> None:
    whole, killed = train("whole", "--rounds", "2"), train("killed", "--rounds", "2")
    for name in ("result.json", "trades.parquet", "equity.parquet", "result.png"):
        (killed / name).unlink()
    assert main(["resume", str(killed)]) == 0
    assert (killed / "result.png").stat().st_size == (whole / "result.png").stat().st_size
    same(whole, killed)


@pytest.mark.long
def test_a_finished_run_resumed_stays_as_it_is(train: Train, same: Same) -> None:
    whole, again = train("whole", "--rounds", "2"), train("again", "--rounds", "2")
    assert main(["resume", str(again)]) == 0
    same(whole, again)


def test_a_finished_run_resumed_tells_its_result_and_plays_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = fw.train("ppo", run=tmp_path / "run", rounds=2, **SMALL_PPO)
    result, played = (run.path / "result.json").read_bytes(), list[str]()
    monkeypatch.setattr(EpisodeEvaluator, "play_", lambda _self, name, *_: played.append(name))
    assert main(["resume", str(run.path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"the run has finished, 2 of 2 blocks done. Go on by: flatwater resume {run.path} --rounds N" in said
    assert (run.path / "result.json").read_bytes() == result
    assert played == []
    monkeypatch.undo()
    (run.path / "result.json").write_text("{}")
    assert main(["resume", str(run.path)]) == 0
    assert (run.path / "result.json").read_bytes() == result, "a damaged result is written again"


def test_a_finished_run_from_a_mirror_is_scored_as_its_result_may_be_of_an_earlier_checkpoint(tmp_path: Path) -> None:
    """A run that was killed between its last checkpoint and its result has the result of fewer rounds there."""
    run = fw.train("ppo", run=tmp_path / "run", rounds=2, mirror=f"file://{tmp_path}/far", **SMALL_PPO)
    result = (run.path / "result.json").read_bytes()
    (tmp_path / "far" / "run" / "result.json").write_bytes(result.replace(b".", b".1"))
    assert main(["resume", f"file://{tmp_path}/far/run", "--into", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "result.json").read_bytes() == result


def test_a_copy_of_a_run_killed_before_its_result_is_scored_though_its_old_result_seems_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fw.train("ppo", run=tmp_path / "whole", rounds=2, **SMALL_PPO)
    killed = fw.train("ppo", run=tmp_path / "killed", rounds=1, **SMALL_PPO).path
    old_result = (killed / "result.json").read_bytes()
    monkeypatch.setattr(Run, "write_result", lambda *_: 1 / 0)
    assert main(["resume", str(killed), "--rounds", "2"]) != 0
    monkeypatch.undo()
    (killed / "result.json").write_bytes(old_result)  # the time of copying, after the checkpoint's
    assert main(["resume", str(killed)]) == 0
    assert (killed / "result.json").read_bytes() == (whole.path / "result.json").read_bytes() != old_result


def test_one_configuration_is_one_run(train: Train, same: Same, tiny: list[str], tmp_path: Path) -> None:
    whole, again = train("whole", "--rounds", "2"), tmp_path / "again"
    assert main(["train", "erl", *tiny, "--rounds", "2", "--run", str(again)]) == 0
    same(whole, again)


@pytest.mark.slow
def test_the_configuration_of_a_run_repeats_it(train: Train, same: Same, tmp_path: Path) -> None:
    first = train("first", "--rounds", "2", "--seed", "7", "--learner.grad-clip", "0.9")
    again = tmp_path / "again"
    assert main(["train", "erl", "--config", str(first / "config.toml"), "--run", str(again)]) == 0
    assert (first / "config.toml").read_bytes() == (again / "config.toml").read_bytes()
    same(first, again)


@pytest.mark.long
def test_options_win_over_the_file(train: Train, tmp_path: Path) -> None:
    first = train("first", "--rounds", "1")
    again = tmp_path / "again"
    options = ("--config", str(first / "config.toml"), "--run", str(again), "--seed", "3", "--rounds", "2")
    assert main(["train", "erl", *options]) == 0
    result = json.loads((again / "result.json").read_text())
    assert (result["seed"], result["generations"]) == (3, 2)


def test_the_newest_checkpoint_is_damaged_so_the_one_before_is_used(
    train: Train, same: Same, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, damaged = train("whole", "--rounds", "4"), train("damaged", "--rounds", "3")
    newest, before = (json.loads((damaged / f"checkpoints/00000{n}.000000.json").read_text()) for n in (3, 2))
    old = {shard["sha256"] for shard in before["shards"]}
    only = next(shard["sha256"] for shard in newest["shards"] if shard["sha256"] not in old)
    shard = damaged / "checkpoints" / "objects" / f"{only}.safetensors"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)

    assert main(["resume", str(damaged), "--rounds", "4"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "000003.000000.json is damaged" in said
    assert "000002.000000.json (round 2) is " in said
    same(whole, damaged)


def test_no_checkpoint_is_intact(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run", "--rounds", "2")
    for manifest in (run / "checkpoints").glob("*.json"):
        manifest.write_bytes(manifest.read_bytes()[:-20])
    assert main(["resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert "no intact checkpoint" in said
    assert f"flatwater train erl --config {run / 'config.toml'} --run FOLDER" in said


@pytest.mark.long
def test_another_configuration_is_refused_with_the_differences(
    train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train("run", "--rounds", "1")
    config = run / "config.toml"
    written = config.read_text()
    assert "\ngrad_clip = 1.0\n" in written
    assert "\nseed = 0\n" in written
    config.write_text(
        written.replace("\ngrad_clip = 1.0\n", "\ngrad_clip = 0.5\n").replace("\nseed = 0\n", "\nseed = 4\n")
    )
    for command in (["resume", str(run), "--rounds", "2"], ["evaluate", str(run)]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "config.learner.grad_clip: 1 in the checkpoint, 0.5 now" in said
        assert "config.seed: 0 in the checkpoint, 4 now" in said
        assert str(config) in said
    config.write_text(written)
    assert main(["resume", str(run), "--rounds", "2"]) == 0


def test_other_data_are_refused_with_the_differences(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run", "--rounds", "1")
    config = run / "config.toml"
    written = config.read_text()
    config.write_text(written.replace('"synthetic:6x260"', '"synthetic:6x261:seed=1"'))
    assert main(["resume", str(run), "--rounds", "2"]) == 2
    assert re.search(r"on 2000-01-03 the \w+ of S0 is \S+ and was \S+\. Give a panel", capsys.readouterr().err)


def test_fewer_generations_than_there_are_is_refused(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run", "--rounds", "2")
    before = (run / "config.toml").read_bytes()
    assert main(["resume", str(run), "--rounds", "1"]) == 2
    assert "--rounds 1: the run has 2 generations" in capsys.readouterr().err
    assert (run / "config.toml").read_bytes() == before


@pytest.mark.long
def test_a_run_on_a_file_named_from_here_is_resumed_from_elsewhere(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_panel(load_panel("synthetic:6x260"), tmp_path / "mine.panel")
    run = train("run", "--rounds", "1", "--panel", "mine.panel")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert main(["resume", str(run.absolute()), "--rounds", "2"]) == 0


@pytest.mark.long
def test_other_versions_are_told_and_nothing_is_lost(
    train: Train, same: Same, capsys: pytest.CaptureFixture[str]
) -> None:
    """The version alone changes no number here, so the run must be the one that was not moved."""
    whole, run = train("whole", "--rounds", "2"), train("run", "--rounds", "1")
    manifest = read_manifest(max((run / "checkpoints").glob("*.json")))
    now = manifest.facts["versions"]
    assert isinstance(now, dict)
    other = {**now, "torch": "1.13.0", "arithmetic": "NEON"}
    write_object(manifest.file, encode_manifest(replace(manifest, facts={**manifest.facts, "versions": other})))
    assert main(["resume", str(run), "--rounds", "2"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"torch 1.13.0 when it was saved, {now['torch']} now" in said
    assert f"arithmetic NEON when it was saved, {now['arithmetic']} now" in said
    assert "python" not in said.split("nothing is lost")[0].rsplit("arithmetic", maxsplit=1)[1]
    assert "last bits" in said
    machines = list_checkpoints(run / "checkpoints")[-1].facts["machines"]
    assert machines == sorted(["NEON", now["arithmetic"]]), "the report names them"
    same(whole, run)
    assert main(["resume", str(run)]) == 0
    assert "when it was saved" not in capsys.readouterr().out


@pytest.mark.long
def test_a_checkpoint_that_says_less_of_its_versions_is_resumed(
    train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train("run", "--rounds", "1")
    manifest = read_manifest(max((run / "checkpoints").glob("*.json")))
    write_object(manifest.file, encode_manifest(replace(manifest, facts={**manifest.facts, "versions": {}})))
    assert main(["resume", str(run), "--rounds", "2"]) == 0
    assert "when it was saved" not in capsys.readouterr().out
