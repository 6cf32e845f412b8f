"""A stored panel: the same contents, one shared mapping, never a half-written or damaged one."""

import subprocess
import sys
from pathlib import Path

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from flatwater_trading.panel.config import SyntheticConfig
from flatwater_trading.panel.panel import Panel, build_panel, fingerprint
from flatwater_trading.panel.store import open_panel, save_panel
from flatwater_trading.panel.synthetic import synthetic_panel
from flatwater_watch.errors import DataError


@pytest.fixture(scope="module")
def panel() -> Panel:
    return synthetic_panel(SyntheticConfig(instruments=4, days=90, context_instruments=1)).panel


@pytest.fixture
def stored_panel(panel: Panel, tmp_path: Path) -> Path:
    save_panel(panel, tmp_path / "panel.safetensors")
    return tmp_path / "panel.safetensors"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    values=hnp.arrays(np.float32, st.tuples(st.integers(1, 7), st.integers(1, 5), st.just(9))),
    name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_what_is_opened_is_what_was_saved(tmp_path: Path, values: np.ndarray, name: str) -> None:
    days, columns, _ = values.shape
    dates = np.datetime64("2001-02-03") + np.arange(days)
    names = [f"{name}{n}" for n in range(columns)]
    saved = build_panel(values=values, dates=dates, instruments=names, investable=names[: 1 + columns // 2])

    save_panel(saved, tmp_path / "panel")
    opened = open_panel(tmp_path / "panel")

    for one, other in zip(_arrays(saved), _arrays(opened), strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
        assert not other.flags.writeable
    assert opened.instruments == saved.instruments
    assert opened.features == saved.features
    assert opened.fingerprint == saved.fingerprint


def test_the_fingerprint_in_the_file_is_that_of_the_contents(stored_panel: Path) -> None:
    opened = open_panel(stored_panel)
    again = fingerprint(
        values=opened.values, dates=opened.dates, instruments=opened.instruments, investable=opened.investable
    )
    assert again == opened.fingerprint


def test_the_file_is_safetensors_to_others(panel: Panel, stored_panel: Path) -> None:
    arrays = load_file(stored_panel)
    np.testing.assert_array_equal(arrays["values"], panel.values)
    np.testing.assert_array_equal(arrays["valid"], panel.valid)
    np.testing.assert_array_equal(arrays["dates"].astype("datetime64[D]"), panel.dates)


def test_equal_panels_make_equal_files(stored_panel: Path, tmp_path: Path) -> None:
    save_panel(open_panel(stored_panel), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == stored_panel.read_bytes()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of anonymous memory")
def test_reading_every_value_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    values = np.ones((1000, 1000, 9), dtype=np.float32)
    dates = np.datetime64("2001-02-03") + np.arange(1000)
    save_panel(build_panel(values=values, dates=dates, instruments=[f"{n}" for n in range(1000)]), tmp_path / "panel")
    del values
    opened = open_panel(tmp_path / "panel")
    before = _anonymous_bytes()
    again = open_panel(tmp_path / "panel")
    assert again.values.max() == opened.values.min() == 1
    assert _anonymous_bytes() - before < opened.values.nbytes / 4


@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_one_wrong_bit_anywhere_is_noticed(stored_panel: Path, at: float, bit: int) -> None:
    whole = stored_panel.read_bytes()
    damaged = bytearray(whole)
    damaged[int(at * len(whole))] ^= 1 << bit
    stored_panel.with_name("damaged").write_bytes(damaged)
    with pytest.raises(DataError, match="damaged: "):
        open_panel(stored_panel.with_name("damaged"))


@given(share=st.floats(0, 1, exclude_max=True))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_truncated_file_is_refused(stored_panel: Path, share: float) -> None:
    whole = stored_panel.read_bytes()
    stored_panel.with_name("short").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DataError, match="short: "):
        open_panel(stored_panel.with_name("short"))


@pytest.mark.parametrize("contents", [b"", b"PAR1 and more", b"\x02" + b"\0" * 7 + b"[]", b"\x02" + b"\0" * 7 + b"{}"])
def test_a_foreign_file_is_refused(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "foreign").write_bytes(contents)
    with pytest.raises(DataError, match=r"foreign: .*flatwater panel import"):
        open_panel(tmp_path / "foreign")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing: .*No such file"):
        open_panel(tmp_path / "nothing")


def test_a_place_that_cannot_be_written_leaves_nothing_behind(panel: Panel, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"folder: .*written: .*director"):
        save_panel(panel, tmp_path / "folder")
    with pytest.raises(DataError, match=r"no_folder/panel: .*written: .*director"):
        save_panel(panel, tmp_path / "no_folder" / "panel")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_a_full_disk_leaves_the_old_file(stored_panel: Path) -> None:
    before = stored_panel.read_bytes()
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from flatwater_watch.errors import DataError\n"
        "from flatwater_trading.panel.store import open_panel, save_panel\n"
        "stored = Path(sys.argv[1]); panel = open_panel(stored)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n    save_panel(panel, stored)\n"
        "except DataError as wrong:\n    print(wrong)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(stored_panel)], capture_output=True, text=True, check=True
    )
    assert "File too large" in said.stdout
    assert stored_panel.read_bytes() == before
    assert list(stored_panel.parent.iterdir()) == [stored_panel]


def _arrays(panel: Panel) -> tuple[np.ndarray, ...]:
    return panel.values, panel.valid, panel.dates, panel.investable


def _anonymous_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024
