"""Text files in other encodings, and packed ones: the same panel; bombs and other kinds are refused in words."""

import gzip
from pathlib import Path

import pytest

from flatwater_trading.panel import unpacking
from flatwater_trading.panel.importing import read_prices
from flatwater_trading.panel.locate import load_panel
from flatwater_watch.errors import DataError

TEXT = "date,Ä,B\n" + "".join(f"2024-01-{day:02},{day}.5,{day + 1}\n" for day in range(1, 29))
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32")


def names_left(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("flatwater-*")]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_same_table_in_any_encoding_packed_or_not(
    encoding: str,
    packed: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plain = tmp_path / "plain.csv"
    plain.write_text(TEXT, "utf-8")
    data = TEXT.encode(encoding)
    file = tmp_path / ("prices.csv.gz" if packed else "prices.csv")
    file.write_bytes(gzip.compress(data) if packed else data)
    assert read_prices(file).panel.fingerprint == read_prices(plain).panel.fingerprint
    assert names_left(tmp_path) == []


def test_a_packed_file_is_named_as_panel_and_gives_its_name_to_one_instrument(tmp_path: Path) -> None:
    (tmp_path / "AAPL.csv.gz").write_bytes(gzip.compress(b"date,open,high,low,close\n2024-01-01,1,1,1,1\n"))
    assert load_panel(str(tmp_path / "AAPL.csv.gz")).instruments == ("AAPL",)


def test_what_unpacks_to_a_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(unpacking, "FREE_BYTES", 1 << 20)
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"date,A\n" + bytes(32 << 20)))
    with pytest.raises(DataError, match=r"unpack to more than .*\(gunzip\)"):
        read_prices(tmp_path / "bomb.csv.gz")
    assert names_left(tmp_path) == []


def test_a_table_of_numbers_that_repeat_is_no_bomb(tmp_path: Path) -> None:
    rows = "".join(f"{1970 + n // 300}-{n // 25 % 12 + 1:02}-{n % 25 + 1:02},1,1,1,1\n" for n in range(15_000))
    (tmp_path / "flat.csv.gz").write_bytes(gzip.compress(b"date,A,B,C,D\n" + rows.encode()))
    assert read_prices(tmp_path / "flat.csv.gz").panel.valid.shape == (15_000, 4)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.csv", b"PK\x03\x04rest", "zip archive .*unpack"),
        ("a.csv", b"PAR1rest", r"Parquet: .*\.parquet"),
        ("a.csv", b"\x28\xb5\x2f\xfdrest", r"\(zstd -d\)"),
        ("a.zip", b"PK\x03\x04rest", r"'\.zip'\. .*\(unzip a\.zip\)"),
        ("a.csv.zst", b"rest", r"'\.zst'\. .*\(zstd -d a\.csv\.zst\)"),
        ("a.csv.gz", gzip.compress(TEXT.encode(), mtime=0)[:60], "unpacked: .*cut off"),
        ("a.csv.gz", b"\x1f\x8bgarbage", "unpacked: "),
        ("a.csv.gz", b"", "empty"),
        ("a.csv", b"date,M\xfcller\n2024-01-01,1\n", "not UTF-8 "),
        ("a.csv", b"\xff\xfed\x00a\x00t", "text in UTF-16"),
        ("a.csv", b"date,AAA,AAA\n2024-01-01,1,2\n", r"two .*'AAA' \(columns 2 and 3\)"),
        ("a.csv", b"date,A,,\n2024-01-01,1,2,3\n", r"two .*without a name \(columns 3 and 4\)"),
    ],
)
def test_other_files_are_refused_in_words(name: str, data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=said):
        read_prices(tmp_path / name)
