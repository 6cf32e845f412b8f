"""A study comes to the same result however often it is stopped, and pools its folds as a person would by hand."""

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from signalled import signal_when
from status_lines import StatusLines

from flatwater.cli.main import main
from flatwater.rundir.listing import list_runs
from flatwater_trading.cli.study import StudyTraders, StudyWeights, next_commands, show_study
from flatwater_trading.panel.panel import Panel
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.study import opening
from flatwater_trading.study.config import StudyConfig
from flatwater_trading.study.folder import StudyFolder
from flatwater_trading.study.folds import cut_folds, fold_config
from flatwater_trading.study.member import plan_largest_run, read_study_panel
from flatwater_trading.study.opening import StudyRequest, open_study_folder
from flatwater_trading.study.page import study_page
from flatwater_trading.study.records import read_study
from flatwater_trading.study.study import StudyOutcome, train_study
from flatwater_watch.errors import ConfigError, MemoryLimitError, RunError

FAKE = (sys.executable, str(Path(__file__).with_name("fake_member.py")))
BASE = ErlRunConfig(rounds=4, threads=1, seed=5)


def order(folder: str = "s", **asked: object) -> StudyRequest:
    given = {"config": BASE, "folds": 2, "seeds": "2", "jobs": 1} | asked
    return StudyRequest(folder=Path(folder), **given)  # type: ignore[arg-type]


def run_study(asked: StudyRequest) -> tuple[StudyOutcome, str]:
    console = Console(file=io.StringIO(), width=200)
    outcome = train_study(asked, console, FAKE, FAKE)
    return outcome, console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StudyOutcome, str]:
    """A finished study of two folds and two seeds, with what its processes left beside it."""
    return finish_in(tmp_path_factory.mktemp("study"), order)


@pytest.fixture(scope="module")
def finished_search(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StudyOutcome, str]:
    """The same with a search of three trials in each fold, two runs at once."""
    return finish_in(tmp_path_factory.mktemp("search"), lambda: searching("s", jobs=2))


def finish_in(there: Path, asked: Callable[[], StudyRequest]) -> tuple[Path, StudyOutcome, str]:
    here = Path.cwd()
    os.chdir(there)
    try:
        return (there, *run_study(asked()))
    finally:
        os.chdir(here)


@pytest.fixture
def whole(finished_study: tuple[Path, StudyOutcome, str]) -> StudyOutcome:
    """A copy of the finished study, as the study `s` of the working folder."""
    shutil.copytree(finished_study[0], Path.cwd(), dirs_exist_ok=True)
    return finished_study[1]


@pytest.fixture
def outcome_of_search(finished_search: tuple[Path, StudyOutcome, str]) -> StudyOutcome:
    """A copy of the finished study with a search, as the study `s` of the working folder."""
    shutil.copytree(finished_search[0], Path.cwd(), dirs_exist_ok=True)
    return finished_search[1]


def names(file: str) -> list[str]:
    return [line.split()[0] for line in Path(file).read_text().splitlines()]


def test_each_fold_is_trained_with_each_seed_on_what_came_before_it(
    finished_study: tuple[Path, StudyOutcome, str], whole: StudyOutcome
) -> None:
    assert names("started") == ["fold-01-seed-5", "fold-01-seed-6", "fold-02-seed-5", "fold-02-seed-6"]
    settings = [json.loads(Path("s", name, "order.json").read_text()) for name in names("started")]
    assert [(one["splits"]["days"], one["splits"]["holdout_days"], one["seed"]) for one in settings] == [
        (400, 200, 5),
        (400, 200, 6),
        (600, 200, 5),
        (600, 200, 6),
    ]
    assert whole.result["seeds"] == [5, 6]
    assert {run["state"] for run in whole.result["runs"]} == {"finished"}
    assert "4 of 4" in finished_study[2]


def test_the_pooled_equity_is_that_of_money_split_among_the_seeds_and_carried_from_fold_to_fold(
    whole: StudyOutcome,
) -> None:
    pooled = whole.result["pooled"]
    money = 1.0
    for fold in ("01", "02"):
        ends = []
        for seed in (5, 6):
            curve = pl.read_parquet(f"s/fold-{fold}-seed-{seed}/holdout_equity.parquet")["champion"]
            ends.append(money / 2 * curve[-1] / curve[0])
        money = sum(ends)
    champion, years = pooled["traders"]["champion"], 400 / 365  # this market is open on weekends
    assert champion["total_return"] == pytest.approx(money - 1)
    assert champion["annual_return"] == pytest.approx(money ** (1 / years) - 1)
    assert champion["turnover"] == pytest.approx((3.0 + 3.0) / years)
    assert pooled["traders"]["buy and hold"]["turnover"] is None
    curve = pl.read_parquet("s/equity.parquet")
    assert len(curve) == 401
    daily = np.diff(curve["champion"].to_numpy()) / curve["champion"].to_numpy()[:-1]
    assert champion["sharpe"] == pytest.approx(daily.mean() / daily.std(ddof=1) * 365**0.5)
    equal = np.diff(curve["equal weight"].to_numpy()) / curve["equal weight"].to_numpy()[:-1]
    assert pooled["against_equal_weight"]["mean"] == pytest.approx(365 * (daily - equal).mean())
    assert pooled["deflated"]["tries"] == 2 * 2 * 4 * 16


def test_random_traders_are_pooled_as_the_champions_are(whole: StudyOutcome) -> None:
    pooled = whole.result["pooled"]
    grown = np.ones(20)
    for fold in ("01", "02"):
        chances = [json.loads(Path(f"s/fold-{fold}-seed-{seed}/holdout.json").read_text())["chance"] for seed in (5, 6)]
        grown *= 1 + np.mean(chances, axis=0)
    beaten = float((grown - 1 < pooled["traders"]["champion"]["total_return"]).mean())
    assert pooled["comparison"]["beaten"] == pytest.approx(beaten)


def test_holding_times_are_pooled_as_the_champions_are_and_the_page_has_the_rules(whole: StudyOutcome) -> None:
    """Seed 5 holds for 10 days and seed 6 for 5, so each has a return of its own where the other is played again.

    Seed 5 earns 3 % by the rule of the settings, and seed 6 has chosen that rule.
    """
    pooled, grown, unchosen = dict(whole.result["pooled"]), 1.0, 1.0
    for fold in ("01", "02"):
        curve = pl.read_parquet(f"s/fold-{fold}-seed-6/holdout_equity.parquet")["champion"]
        grown *= (1.02 + curve[-1] / curve[0]) / 2
        unchosen *= (1.03 + curve[-1] / curve[0]) / 2
    assert pooled["holding_times"].keys() == {"5", "10", "20"}
    assert pooled["holding_times"]["5"] == pytest.approx(grown - 1)
    assert pooled["holding_times"]["20"] == pytest.approx(1.01**2 - 1)
    assert pooled["unchosen_return"] == pytest.approx(unchosen - 1)
    assert [(row["fold"], row["seed"], row["hold_days"]) for row in pooled["rules"]] == [
        (1, 5, 10),
        (1, 6, 5),
        (2, 5, 10),
        (2, 6, 5),
    ]
    page = study_page(read_study(Path("s")))
    assert "The same scores under other holding times" in page
    assert "by the rule of the settings" in page
    file = Path("s/study.json")
    for name in ("rules", "holding_times"):
        pooled.pop(name)
    file.write_text(json.dumps(whole.result | {"pooled": pooled}))
    assert "The same scores" not in study_page(read_study(Path("s"))), "a study of weights"
    file.write_text(json.dumps(whole.result | {"pooled": pooled | {"rules": [{"fold": 1}]}}))
    with pytest.raises(RunError, match="is damaged"):
        read_study(Path("s"))


@pytest.mark.few(1)
@pytest.mark.parametrize("jobs", [3, 1])
def test_a_stopped_study_comes_to_the_result_of_one_in_one_piece(jobs: int, whole: StudyOutcome) -> None:
    Path("hold").write_text("3")
    thread = signal_when(Path("held").exists, signal.SIGTERM)
    stopped, said = run_study(order("cut", jobs=jobs))
    thread.join()
    assert stopped.stop.signal == signal.SIGTERM
    assert stopped.result["pooled"] is None
    assert "stopped in generation" in said
    Path("hold").unlink()
    again = run_study(order("cut", folds=None, seeds=None, jobs=jobs))[0]
    assert again.result == whole.result
    assert Path("cut/study.json").read_bytes() == Path("s/study.json").read_bytes()
    assert Path("cut/equity.parquet").read_bytes() == Path("s/equity.parquet").read_bytes()


@pytest.mark.long
def test_what_is_done_is_kept(whole: StudyOutcome) -> None:
    Path("started").unlink()
    assert run_study(order(folds=None, seeds=None))[0].result == whole.result
    assert not Path("started").exists()
    grown = run_study(order(folds=None, seeds="5,6,9"))[0]
    assert names("started") == ["fold-01-seed-9", "fold-02-seed-9"]
    assert len(grown.result["pooled"]["by_seed"]) == 3


@pytest.mark.long
def test_so_many_runs_work_at_once_as_are_asked_for() -> None:
    """Three are held at the same time, and the fourth begins only when they go on."""
    Path("hold").write_text("2")

    def let_go() -> None:
        while not Path("started").exists() or len(names("started")) < 3:
            time.sleep(0.01)
        time.sleep(0.5)
        Path("at once").write_text(Path("started").read_text())
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=let_go)
    thread.start()
    run_study(order(jobs=3))
    thread.join()
    assert len(names("at once")) == 3


@pytest.mark.long
def test_a_run_that_fails_leaves_its_fold_out_and_its_reason_behind() -> None:
    Path("broken").write_text("fold-01-seed-6")
    outcome, said = run_study(order())
    assert "fold 1, seed 6: failed: The run would take 9.0 GiB" in said
    assert "3 of 4 runs done, only the scores are left" in said, "nobody waits for the rounds of a run that failed"
    failed = [run for run in outcome.result["runs"] if run["state"] == "failed"]
    assert [(run["run"], run["reason"][:20]) for run in failed] == [("fold-01-seed-6", "The run would take 9")]
    assert len(outcome.result["pooled"]["by_fold"]) == 1
    Path("broken").unlink()
    assert len(run_study(order())[0].result["pooled"]["by_fold"]) == 2


def searching(folder: str, **asked: object) -> StudyRequest:
    """An order of a study whose trials are the better, the higher the weight decay is that each of them draws."""
    Path("space.toml").write_text("[learner.weight_decay]\nlow = 0.001\nhigh = 0.01\n")
    return order(folder, **{"space": Path("space.toml"), "trials": 3} | asked)


def decay_of(run: Path) -> float:
    decay: float = json.loads((run / "order.json").read_text())["learner"]["weight_decay"]
    return decay


def test_the_runs_of_a_fold_train_with_the_settings_of_its_best_trial(
    finished_search: tuple[Path, StudyOutcome, str], outcome_of_search: StudyOutcome
) -> None:
    check_search(outcome_of_search, finished_search[2])


@pytest.mark.long
@pytest.mark.parametrize("jobs", [1, 3])
def test_so_they_do_however_many_work_at_once(jobs: int) -> None:
    check_search(*run_study(searching("s", jobs=jobs)))


def check_search(outcome: StudyOutcome, said: str) -> None:
    searches = outcome.result["search"]
    assert len(searches) == 2
    for number, search in enumerate(searches, 1):
        trials = [*Path(f"s/fold-{number:02}-search").glob("trial-*")]
        assert (search["fold"], search["trials"], search["rounds"]) == (number, 3, 12)
        best = max(map(decay_of, trials))
        assert search["settings"] == {"learner.weight_decay": best}
        assert search["value"] == 4 + best
        # No trial reads the fold's test days: they are its holdout, and what comes later is cut off.
        cuts = [json.loads((trial / "order.json").read_text())["splits"] for trial in trials]
        assert {(cut["days"], cut["holdout_days"]) for cut in cuts} == {(200 + 200 * number, 200)}
        assert {decay_of(Path(f"s/fold-{number:02}-seed-{seed}")) for seed in (5, 6)} == {best}
    assert outcome.result["pooled"]["deflated"]["tries"] == 2 * (2 * 4 * 16 + 3 * 4 * 16)
    shown = f"learner.weight_decay {searches[1]['settings']['learner.weight_decay']:.4g}"
    assert shown in study_page(read_study(Path("s")))
    console = Console(file=io.StringIO(), width=80)
    show_study(outcome.result, console)
    assert f"fold 2: {shown}" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "fold 2, seed 6" in said


@pytest.mark.parametrize("held_names", ["trial-0002", "fold-01-seed-6"])
def test_a_study_that_is_stopped_in_its_search_or_after_it_comes_to_the_same_result(
    held_names: str, outcome_of_search: StudyOutcome
) -> None:
    Path("hold").write_text(f"3 {held_names}")
    thread = signal_when(Path("held").exists, signal.SIGTERM)
    stopped, _ = run_study(searching("cut", jobs=2))
    thread.join()
    assert stopped.stop.signal == signal.SIGTERM
    assert stopped.result["pooled"] is None
    Path("hold").unlink()
    again = run_study(order("cut", folds=None, seeds=None, jobs=2))[0]
    assert again.result == outcome_of_search.result


DRIVER = """
import sys
sys.path = sys.argv[1:]
import test_study
test_study.run_study(test_study.searching("cut", jobs=2))
"""


@pytest.mark.parametrize("held_round", [1, 3])
def test_a_study_that_is_killed_in_its_search_comes_to_the_same_result(
    held_round: int, outcome_of_search: StudyOutcome
) -> None:
    """SIGKILL leaves no time to write anything: neither the study nor the sweep of its fold can say where it was."""
    Path("hold").write_text(f"{held_round} trial-0002")
    killed = subprocess.Popen([sys.executable, "-c", DRIVER, str(Path(__file__).parent), *sys.path])
    while not Path("held").exists():
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert not Path("cut/study.json").exists()
    Path("hold").unlink()
    again, said = run_study(order("cut", folds=None, seeds=None, jobs=2))
    assert again.result == outcome_of_search.result
    assert Path("cut/study.json").read_bytes() == Path("s/study.json").read_bytes()
    assert "trial 2/3" in said


def test_the_rounds_of_trials_count_for_the_time_left() -> None:
    """Two folds with three trials and two seeds each, of four rounds: 40 rounds, all of them shown."""
    Path("hold").write_text("2 trial-0003")
    thread, console = signal_when(Path("held").exists, signal.SIGTERM), StatusLines()
    train_study(searching("cut", jobs=1), console, FAKE, FAKE)
    thread.join()
    Path("hold").unlink()
    told = [line for line in console.kept if line.startswith("searching settings for fold 1 of 2, generation ")]
    assert told[0].endswith("generation 0 of 40, time left unknown yet")
    assert "generation 10 of 40, " in told[-1]
    assert told[-1].endswith(" left")
    console.kept.clear()
    train_study(order("cut", folds=None, seeds=None), console, FAKE, FAKE)
    assert any(line.startswith("searching settings for fold 2 of 2, generation 24 of 40, ") for line in console.kept)
    assert "4 of 4 runs, generation 40 of 40, only the scores are left" in console.kept


@pytest.mark.usefixtures("outcome_of_search")
def test_another_search_is_another_study() -> None:
    Path("other.toml").write_text("[learner.weight_decay]\nlow = 0.001\nhigh = 0.002\n")
    with pytest.raises(ConfigError, match=r"--trials 4: .*has 3,"):
        run_study(order(trials=4))
    with pytest.raises(ConfigError, match="searches another space"):
        run_study(order(space=Path("other.toml")))
    with pytest.raises(ConfigError, match=r"--trials 3: expected --space"):
        run_study(order("new", trials=3))


@pytest.mark.usefixtures("whole")
def test_a_study_that_was_begun_without_a_search_gets_none() -> None:
    Path("other.toml").write_text("[learner.weight_decay]\nlow = 0.001\nhigh = 0.002\n")
    with pytest.raises(ConfigError, match="was begun without a search"):
        run_study(order(space=Path("other.toml")))


def test_a_study_without_a_search_needs_no_optuna() -> None:
    blocked = "import sys; sys.modules['optuna'] = sys.modules['sqlalchemy'] = None"
    words = [sys.executable, "-c", f"{blocked}; import flatwater_trading.study.study"]
    assert subprocess.run(words, check=False).returncode == 0


OTHERS = [
    ({"folds": 3}, r"--folds 3: .* 2\b"),
    ({"seeds": "no"}, "--seeds 'no': .*0,5,9"),
    ({"seeds": "5,"}, r"--seeds 5,: .* 6\b"),
    ({"config": ErlRunConfig(rounds=9, threads=1, seed=5)}, r"rounds: 4 .* 9\b"),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("asked", "said"), OTHERS)
@pytest.mark.usefixtures("whole")
def test_a_study_does_not_go_on_as_another(asked: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run_study(order(**asked))


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("panel", "said"),
    [
        ("synthetic:4x60", "synthetic:4x60: expected the 600 days that the study was begun with, .* got 60 days: "),
        ("synthetic:4x600", "got 600 days: days, instruments or prices differ. Give the panel as it was, or another "),
    ],
)
def test_a_study_does_not_go_on_with_other_prices(panel: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A panel that was shortened had too few days for the folds, which were refused instead of the panel."""
    assert main(["study", panel, "--run", "s", "--plan"]) == 2
    assert re.search(said, " ".join(capsys.readouterr().err.split()))


def test_a_study_goes_on_without_newer_days_and_names_the_price_that_changed() -> None:
    prices = [f"{100 * 1.001**day * (2 + (day + column) % 3):.4f}" for day in range(40) for column in range(2)]
    dates = np.busday_offset("2020-01-06", np.arange(40))
    lines = [f"{dates[row // 2]},{'AB'[row % 2]},{price}" for row, price in enumerate(prices)]
    file, head = Path("prices.csv"), "date,symbol,close"

    def read_first_days(days: int) -> tuple[Panel, list[str]]:
        file.write_text("\n".join([head, *lines[: 2 * days]]))
        return read_study_panel(ErlRunConfig(panel=str(file)), begun)

    begun = None
    panel = read_first_days(30)[0]
    begun = StudyConfig(days=30, data=panel.fingerprint)
    for days, left_out in ((30, []), (32, ["left out: 2 newer days of the panel, as the study was begun without"])):
        cut_panel, newer_lines = read_first_days(days)
        assert (cut_panel.fingerprint, newer_lines) == (panel.fingerprint, left_out)
    with pytest.raises(ConfigError, match=r"got 20 days: it ends on 2020-01-31, before the day 2020-02-03\. Give the"):
        read_first_days(20)
    lines[57] = f"{dates[28]},B,1.5"
    with pytest.raises(ConfigError, match=r"got 30 days: on 2020-02-1\d the close of B is 1\.5 and was "):
        read_first_days(30)


def test_runs_share_the_cores_by_the_folds_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads were those of five folds, the default, where the panel has days for two."""
    monkeypatch.setattr(opening, "free_cores", lambda: 8)
    Path("folds").write_text("2")
    without_threads = ErlRunConfig(rounds=4, threads=0, seed=5)
    study = open_study_folder(order(config=without_threads, folds=None, seeds="1", jobs=None), FAKE)
    assert (study.setup.folds, study.jobs, study.base.threads) == (2, 2, 4)


def test_more_runs_at_once_than_memory_has_room_for_are_refused() -> None:
    with pytest.raises(MemoryLimitError, match=r"--jobs 8: .*8\.00 GiB .*--jobs 7 "):
        run_study(order(folds=4, jobs=8))
    assert not Path("s").exists()


def test_tables_fit_eighty_columns_and_the_page_says_the_same_as_the_terminal(whole: StudyOutcome) -> None:
    console = Console(file=io.StringIO(), width=80)
    show_study(whole.result, console)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, said.splitlines())) <= 80
    verdict = whole.result["pooled"]["verdict"]
    assert verdict in " ".join(said.split())
    assert "256 tries" in verdict
    page = study_page(read_study(Path("s")))
    assert verdict in page
    assert "fold-02-seed-6" in page


@pytest.mark.long
@pytest.mark.usefixtures("whole")
def test_the_commands_for_runs_work_on_a_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "s", "--out", "page.html"]) == 0
    assert "Equity over all test days" in Path("page.html").read_text()
    Path("s/study.json").write_text('{"folds": 2, "seeds": [1], "note": "", "runs": [{}], "pooled": null}')
    assert main(["report", "s", "--out", "page.html"]) == 2
    assert "study.json: is damaged" in capsys.readouterr().err
    Path("s/study.json").unlink()
    with pytest.raises(RunError, match=r"study\.json: .*not there"):
        read_study(Path("s"))


def test_a_study_fills_eighty_columns_and_breaks_no_path(finished_study: tuple[Path, StudyOutcome, str]) -> None:
    """A terminal broke its first line in the middle of a word."""
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    folder = Path("a" * 90) / "study"
    shutil.copytree(finished_study[0] / "s", folder)
    train_study(order(str(folder)), console, FAKE, FAKE)
    told = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())  # type: ignore[attr-defined]
    lines = re.split(r"[\r\n]+", told)
    assert "4 runs (folds: 2, seeds: 2), tested on 2000-01-03 to 2001-01-01, 1 at once, 1" in lines
    assert [line for line in lines if len(line) > 80] == [f"{folder}:"]


def test_a_study_ends_with_the_commands_that_follow(whole: StudyOutcome) -> None:
    train_command, compare_command = next_commands(StudyFolder(Path("my study")), "weights")
    assert shlex.split(train_command) == ["flatwater", "train", "weights", "--config", "my study/base.toml"]
    assert shlex.split(compare_command) == ["flatwater", "compare", "my study", "OTHER"]
    assert whole.folder.base.is_file()


def change_equity(path: Path, **columns: pl.Expr) -> None:
    pl.read_parquet(path).with_columns(**columns).write_parquet(path)


@pytest.mark.usefixtures("whole")
def test_two_studies_are_compared_over_the_days_that_both_tested(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("s", "t")
    base = Path("t/base.toml")
    base.write_text(base.read_text().replace("rounds = 4", "rounds = 9"))
    change_equity(Path("t/equity.parquet"), champion=pl.col("champion") * 1.001 ** pl.int_range(pl.len()))
    equity = pl.read_parquet("t/equity.parquet")
    equity[100:].write_parquet("t/equity.parquet")
    assert main(["compare", "s", "t", "--json", "--page", "both.html"]) == 0
    compared = json.loads(capsys.readouterr().out)
    difference = compared["differences"][0]
    assert [side["settings"] for side in compared["studies"]] == [{"rounds": 4}, {"rounds": 9}]
    assert (difference["count"], difference["units"], difference["same_market"]) == (300, "days", True)
    daily = [
        np.diff(curve) / curve[:-1]
        for curve in (pl.read_parquet(f"{name}/equity.parquet")["champion"] for name in "st")
    ]
    assert difference["interval"]["mean"] == pytest.approx(365 * (daily[1] - daily[0][100:]).mean())
    assert difference["interval"]["low"] > 0
    assert "B earned more than A" in Path("both.html").read_text()
    assert main(["compare", "t", "s"]) == 0
    assert "B earned less than A" in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("whole")
def test_studies_of_other_markets_or_days_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("s", "t")
    change_equity(
        Path("t/equity.parquet"), **{"buy and hold": pl.col("buy and hold") * 1.002 ** pl.int_range(pl.len())}
    )
    assert main(["compare", "s", "t"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "B earned the same as A, over the same 400 days. Buy and hold earned another return in each" in said
    change_equity(Path("t/equity.parquet"), date=pl.col("date") + pl.duration(days=390))
    assert main(["compare", "s", "t"]) == 0
    assert "B and A: no interval, they tested 10 days in common, and 20 are needed" in " ".join(
        capsys.readouterr().out.split()
    )
    Path("r").mkdir()
    assert main(["compare", "s", "r"]) == 2
    assert "expected folders of one kind, got s, a study, and r, a run" in capsys.readouterr().err
    assert main(["compare", "s", "nowhere"]) == 2
    assert "nowhere: there is no such folder" in capsys.readouterr().err, "and not: nowhere, a run"


@pytest.mark.usefixtures("whole")
def test_studies_of_two_recipes_show_the_settings_that_both_have(capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred settings of traders stood beside dashes, and equal weight of another account for other costs."""
    shutil.copytree("s", "t")
    base = Path("t/base.toml")
    base.write_text('trainer = "weights"\nrounds = 9\nhistory = 40\n')
    grown = pl.col("equal weight") * 1.001 ** pl.int_range(pl.len())
    change_equity(Path("t/equity.parquet"), **{"equal weight": grown})
    assert main(["compare", "s", "t", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert compared["studies"][1]["settings"] == {"rounds": 9, "trainer": "weights"}
    assert compared["differences"][0]["same_market"]
    assert main(["compare", "s", "t"]) == 0
    assert "Settings that only some of the recipes have are left out." in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("whole")
def test_settings_of_studies_differ_in_any_digit(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("s", "t")
    for name, deviation in {"s": "0.0250001", "t": "0.0250002"}.items():
        base = Path(name, "base.toml")
        base.write_text(base.read_text().replace("mutation_deviation = 0.025", f"mutation_deviation = {deviation}"))
    assert main(["compare", "s", "t"]) == 0
    assert "evolution.mutation_deviation 0.0250001 0.0250002" in " ".join(capsys.readouterr().out.split())


def damage_settings() -> None:
    Path("t/study.toml").write_text("folds = 2")


def add_table_of_study() -> None:
    base = Path("t/base.toml")
    base.write_text(f"study = 5\n{base.read_text()}")


def link_settings() -> None:
    Path("t/base.toml").unlink()
    Path("t/base.toml").symlink_to(Path("s/base.toml").resolve())


def link_result() -> None:
    Path("t/study.json").unlink()
    Path("t/study.json").symlink_to(Path("s/study.json").resolve())


def drop_trader(name: str) -> None:
    file = Path("t/equity.parquet")
    pl.read_parquet(file).drop(name).write_parquet(file)


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("damage", "code", "part"),
    [
        (damage_settings, 2, "t/study.toml: days: is missing"),
        (add_table_of_study, 0, "study - 5"),
        (link_settings, 2, "t/base.toml: cannot be read"),
        (link_result, 2, "t/study.json: is damaged"),
        (lambda: drop_trader("equal weight"), 2, "column equal weight does not hold a number"),
        (lambda: drop_trader("buy and hold"), 2, "column buy and hold does not hold a number"),
        (lambda: Path("t/equity.parquet").unlink(), 0, "no interval, t/equity.parquet is missing"),
        (lambda: change_equity(Path("t/equity.parquet"), date=pl.col("date").cast(str)), 0, "other types of days"),
        (lambda: change_equity(Path("t/equity.parquet"), date=pl.col("date").first()), 0, "or a day twice"),
        (lambda: change_equity(Path("t/equity.parquet"), champion=pl.lit(0.0)), 0, "has days without a number"),
    ],
)
def test_damage_of_a_compared_study_is_told(
    damage: Callable[[], object], code: int, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree("s", "t")
    damage()
    assert main(["compare", "s", "t"]) == code
    said = capsys.readouterr()
    assert part in " ".join((said.out + said.err).split())


def test_the_first_word_is_a_panel_or_a_file_of_settings() -> None:
    assert StudyTraders.read("flatwater study", ["prices.parquet", "--folds", "3"]).settings().panel == "prices.parquet"
    assert StudyTraders.read("flatwater study", ["--folds", "3", "prices.csv"]).folds == 3
    Path("mine.toml").write_text('panel = "mine.csv"\n[population]\nsize = 6\n')
    mine = StudyTraders.read("flatwater study", ["mine.toml", "--rounds", "3"])
    assert (mine.settings().panel, mine.settings().population.size, mine.settings().rounds) == ("mine.csv", 6, 3)
    with pytest.raises(ConfigError, match=r"prices\.csv: .*--panel"):
        StudyTraders.read("flatwater study", ["prices.csv", "--panel", "other.csv"])


def test_a_file_of_settings_says_what_is_studied() -> None:
    Path("mine.toml").write_text('trainer = "weights"\npanel = "mine.csv"\n[members]\nsize = 3\n')
    for words in (["mine.toml", "--folds", "4"], ["--config", "mine.toml", "--folds", "4"]):
        mine = StudyTraders.read("flatwater study", words)
        assert (mine.settings().trainer, mine.settings().members.size, mine.folds) == ("weights", 3, 4)
    Path("begun").mkdir()
    Path("mine.toml").replace("begun/base.toml")
    Path("begun/study.toml").touch()
    again = StudyTraders.read("flatwater study", ["other.csv", "--run", "begun"])
    assert (again.settings().panel, again.settings().members.size) == ("other.csv", 3)
    Path("mine.toml").write_text('trainer = "erl"\n')
    with pytest.raises(ConfigError, match=r"trainer = 'erl': expected one of .weights"):
        StudyWeights.read("flatwater study weights", ["mine.toml"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("synthetic:4x300 --folds 5", ["--folds 5: of 300 rows ", "train on 50", "too short"]),
        ("synthetic:4x300", ["one fold, the fewest: of 300 rows ", "train on 150", "too short"]),
        ("synthetic:4x1500 --folds 40", ["tested on 36", "--folds 2 "]),
        ("synthetic:4x300 --folds 400", ["--folds 400", "tested on 0"]),
        ("synthetic:4x900 --folds 2 --splits.days 5000", ["splits.days = 5000: ", "900 rows"]),
        ("nothing.parquet", ["nothing.parquet: ", "no such file"]),
        (
            "weights synthetic:4x300 --folds 2",
            ["--folds 2: of 300 rows ", "but 472 or", "lower history"],
        ),
        (
            "weights synthetic:4x1200 --folds 9 --splits.validation-days 40 --history 60 --learner.days 128",
            ["Give --folds 2 ", "learner.days = 128: "],
        ),
        ("synthetic:4x900 --seeds 1,1", ["seeds = (1, 1): ", "1 to 1000 whole numbers", "each once"]),
    ],
)
def test_what_cannot_be_studied_is_refused(words: str, said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", *words.split(), "--plan"]) == 2
    told = capsys.readouterr().err
    assert all(part in " ".join(told.split()) for part in said), told


def test_a_plan_needs_memory_for_no_more_runs_than_the_folds_that_are_chosen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "synthetic:4x1200:late_listings=0 --seeds 1 --rounds 1 --threads 1"
    plan, folds = plan_largest_run(StudyTraders.read("flatwater study", options.split()).settings(), None, None)
    assert folds < 3
    # Room for as many runs as there are, and for fewer than the default number of folds.
    monkeypatch.setattr(opening, "BUDGET_SHARE", (folds + 0.5) * plan.needed_bytes / plan.limit_bytes)
    assert main(["study", *options.split(), "--jobs", "5", "--plan"]) == 0
    assert f"{folds} runs, none larger; {folds} at once take up to " in " ".join(capsys.readouterr().out.split())


WEIGHTS = ["--history", "40", "--splits.validation-days", "40", "--members.size", "2", "--learner.updates", "5"]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["erl", "weights"])
def test_a_killed_study_comes_to_the_same_numbers(recipe: str, tiny: list[str]) -> None:
    """Real runs: SIGKILL takes the study alone; its runs save, and go on bit for bit."""
    settings = ["synthetic:6x400", *tiny[2:]] if recipe == "erl" else ["weights", "synthetic:6x400", *WEIGHTS]
    words = ["study", *settings, "--folds", "2", "--seeds", "2", "--rounds", "3"]
    assert main([*words, "--run", "whole"]) == 0
    lines = {line.name: line.state for line in list_runs(Path("whole"))}
    assert lines == {f"fold-{fold:02}-seed-{seed}": "finished" for fold in (1, 2) for seed in (0, 1)}
    program = f"import sys; from flatwater.cli.main import main; sys.exit(main({[*words, '--run', 'cut']!r}))"
    cut_folds = subprocess.Popen([sys.executable, "-c", program])
    while not [*Path("cut").glob("*/metrics.jsonl")]:
        assert cut_folds.poll() is None
        time.sleep(0.05)
    cut_folds.kill()
    cut_folds.wait()
    assert main([*words, "--run", "cut", "--jobs", "2"]) == 0
    assert Path("cut/study.json").read_bytes() == Path("whole/study.json").read_bytes()


def test_a_fold_is_a_run_on_the_panel_as_it_was() -> None:
    for fold in cut_folds(600, 2):
        splits = fold_config(BASE, fold, seed=7).splits
        assert (splits.days, splits.holdout_days) == (fold.test.stop, len(fold.test))
        assert splits.validation_days == BASE.splits.validation_days
