"""`panel import` replaces a panel and nothing else, and takes no price that a panel cannot hold."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from flatwater.cli.main import main
from flatwater_trading.panel.importing import import_panel
from flatwater_trading.panel.store import check_place, open_panel
from flatwater_watch.errors import DataError

HEAD = "symbol,date,open,high,low,close\n"
ROWS = "".join(f"A,2000-01-{day:02},1,2,1,2\n" for day in range(1, 29))


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prices.csv").write_text(HEAD + ROWS)


def import_to(out: str, *options: str) -> int:
    return main(["panel", "import", "prices.csv", "--out", out, *options])


@pytest.mark.parametrize("way", ["itself", "link", "hard link", "roundabout"])
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_the_source_stays_whatever_it_is_called(way: str, force: tuple[str, ...]) -> None:
    Path("link").symlink_to("prices.csv")
    os.link("prices.csv", "hard")
    out = {"itself": "prices.csv", "link": "link", "hard link": "hard", "roundabout": "../x/../prices.csv"}[way]
    Path("../x").mkdir(exist_ok=True)
    if way == "roundabout":
        out = f"../x/../{Path.cwd().name}/prices.csv"
    assert import_to(out, *force) == 2
    assert Path("prices.csv").read_text() == HEAD + ROWS


def test_only_a_panel_is_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    Path("letter.txt").write_text("dear reader")
    os.mkfifo("pipe")
    for out in ("letter.txt", "pipe", "/dev/null", ".", "nowhere/a.safetensors"):
        assert import_to(out) == 2, out
    assert import_to("/dev/null", "--force") == 2
    assert Path("letter.txt").read_text() == "dear reader"
    assert "add --force" in capsys.readouterr().err

    assert import_to("letter.txt", "--force") == 0
    assert import_to("letter.txt") == 0  # it is a panel now
    Path("empty").touch()
    assert import_to("empty") == 0
    Path("link").symlink_to("empty")
    before = Path("empty").read_bytes()
    assert import_to("link") == 2
    assert Path("link").is_symlink()
    assert Path("empty").read_bytes() == before
    assert len(open_panel(Path("empty")).dates) == 28
    assert sorted(path.name for path in Path().iterdir() if path.name.startswith(".")) == []


def test_the_draft_of_a_killed_import_goes_with_the_next() -> None:
    drafts = {name: Path(name) for name in (".market.0123abcd.tmp", ".other.0123abcd.tmp", ".market.mine.tmp")}
    for draft in drafts.values():
        draft.write_text("half a panel")
    assert import_to("market") == 0
    assert [name for name, draft in drafts.items() if not draft.exists()] == [".market.0123abcd.tmp"]


@pytest.mark.slow
def test_a_killed_import_leaves_the_old_panel() -> None:
    """Twenty kills at other moments, each followed by a look at the whole file."""
    assert import_to("market") == 0
    before = open_panel(Path("market")).fingerprint
    Path("prices.csv").write_text(HEAD + ROWS.replace(",2\n", ",1.5\n"))
    program = "import sys; from flatwater.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "panel", "import", "prices.csv", "--out", "market"]
    began = time.monotonic()
    subprocess.run([*command[:-1], "other"], check=True, capture_output=True)
    whole = time.monotonic() - began
    after = open_panel(Path("other")).fingerprint
    for part in range(20):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as importing:
            time.sleep(whole * (part + 1) / 20)
            importing.send_signal(signal.SIGKILL)
        assert open_panel(Path("market")).fingerprint in {before, after}
    assert import_to("market") == 0
    assert [path.name for path in Path().iterdir() if path.name.startswith(".")] == [], "killed ones leave no draft"


@pytest.mark.parametrize("price", ["1e39", "1e300", "3.5e38", "1e31", "1e-31", "1e-46", "5e-324", "9" * 400])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_price_beyond_what_a_panel_holds_is_refused_with_its_row(price: str, suffix: str) -> None:
    frame = pl.read_csv("prices.csv", infer_schema=False)
    column = [*frame["close"][:6], price, *frame["close"][7:]]
    odd = frame.with_columns(pl.Series("close", column), pl.Series("high", column), low=pl.lit("1e-300"))
    if suffix == ".parquet":
        odd = odd.with_columns(pl.col("high", "low", "close").cast(pl.Float64))
        odd.write_parquet("odd.parquet")
    else:
        odd.write_csv("odd.csv")
    with pytest.raises(DataError, match=r"row [28], (A on|column)" if suffix == ".csv" else r"row [17], (A on|column)"):
        import_panel(Path(f"odd{suffix}"))


def test_a_place_says_what_is_wrong_with_its_folder(tmp_path: Path) -> None:
    missing, file = tmp_path / "missing folder", tmp_path / "file"
    file.write_text("x")
    with pytest.raises(DataError, match=rf"there is no folder {missing}\. Make it first \(mkdir -p '{missing}'\)"):
        check_place(missing / "a.panel")
    with pytest.raises(DataError, match=rf"{file} is a file, not a folder"):
        check_place(file / "a.panel")


@pytest.mark.parametrize(("row", "fields"), [("A,2000-02-01,1,2", 4), ("A,2000-02-01,1,2,1,2,3", 7), ("A", 1)])
def test_a_ragged_row_is_refused_by_its_line(row: str, fields: int) -> None:
    Path("prices.csv").write_text(HEAD + ROWS + row + "\n")
    with pytest.raises(DataError, match=rf"line 30: .*\b{fields} fields.* 6\b"):
        import_panel(Path("prices.csv"))


def test_a_quoted_comma_or_line_break_is_no_ragged_row() -> None:
    Path("prices.csv").write_text(HEAD + ROWS.replace("A,", '"A, B\nC",'))
    assert import_panel(Path("prices.csv")).instruments == ("A, B\nC",)


@pytest.mark.parametrize(
    "column",
    [
        pl.Series("close", [[1.0]] * 3),
        pl.Series("close", [{"a": 1.0}] * 3),
        pl.Series("close", [b"1"] * 3),
        pl.Series("close", [True] * 3),
    ],
)
def test_a_column_of_something_else_is_refused(column: pl.Series) -> None:
    days = [f"2000-01-0{day}" for day in (1, 2, 3)]
    prices = {"symbol": ["A"] * 3, "date": days, "open": [1.0] * 3, "high": [2.0] * 3, "low": [1.0] * 3}
    pl.DataFrame(prices).with_columns(column).write_parquet("odd.parquet")
    with pytest.raises(DataError, match="column close"):
        import_panel(Path("odd.parquet"))


@pytest.mark.parametrize("name", ["pipe.csv", "zero.csv", "folder.csv"])
def test_what_is_no_file_is_not_read(name: str) -> None:
    os.mkfifo("pipe.csv")
    Path("zero.csv").symlink_to("/dev/zero")
    Path("folder.csv").mkdir()
    with pytest.raises(DataError, match="no file"):
        import_panel(Path(name))
    assert main(["panel", "show", name]) == 2


def test_a_place_is_looked_at_again_when_the_panel_is_made() -> None:
    check_place(Path("new"))
    Path("new").write_text("something else, since")
    with pytest.raises(DataError, match="not a panel"):
        check_place(Path("new"))


@pytest.mark.parametrize(
    "name", ["market.parquet", "market.CSV", "market.csv.gz", "market.xlsx", "market.zip", "market.tar.gz"]
)
def test_a_panel_does_not_get_the_name_of_a_table(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected a name for a panel.* Call it market\.safetensors\."):
        check_place(tmp_path / name)
