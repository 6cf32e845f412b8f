"""Configurations survive the trip through a file, and a file that cannot be used is refused with all that helps."""

import bz2
import gzip
import lzma
import re
from dataclasses import field
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.config.toml import dumps_config, load_config, read_toml
from flatwater_watch.errors import ConfigError, require
from flatwater_watch.options.declare import config


@config
class Nested:
    """A part."""

    rate: float = 1e-4
    """Step size of Adam.

    A second paragraph."""
    kind: Literal["ddpg", "td3"] = "ddpg"
    """Which learner."""
    columns: tuple[str, ...] = ("close", "rsi")
    """By name."""
    span: tuple[int, float] = (1, 2.0)
    """A pair."""

    def __post_init__(self) -> None:
        require(self.rate > 0, "learner.rate", self.rate, "positive")


@config
class Whole:
    """A run."""

    rounds: int
    """Generations in all."""
    learner: Nested = field(default_factory=Nested)
    """The update rule."""
    other: Nested | None = None
    """A second one."""
    panel: Path | None = None
    """A file."""
    seed: int | None = None
    """None draws one."""
    device: str = "cpu"
    """Where it runs."""
    compile: bool = False
    """Whether to compile."""
    mixed: int | str = 0
    """A number or a name."""


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
nested = st.builds(
    Nested,
    rate=st.floats(min_value=0, exclude_min=True),
    kind=st.sampled_from(["ddpg", "td3"]),
    columns=st.lists(text, max_size=4).map(tuple),
    span=st.tuples(st.integers(), st.floats(allow_nan=False)),
)
wholes = st.builds(
    Whole,
    rounds=st.integers(-(2**63), 2**63 - 1),
    learner=nested,
    other=st.none() | nested,
    panel=st.none() | text.map(Path),
    seed=st.none() | st.integers(),
    device=text,
    compile=st.booleans(),
    mixed=st.integers() | text,
)


@given(wholes)
def test_a_dumped_configuration_loads_as_itself(tmp_path_factory: pytest.TempPathFactory, whole: Whole) -> None:
    path = tmp_path_factory.getbasetemp() / "config.toml"
    path.write_text(dumps_config(whole), encoding="utf-8")
    assert load_config(Whole, path) == whole


@given(wholes)
def test_a_mapping_builds_the_configuration_that_it_came_from(whole: Whole) -> None:
    assert from_mapping(Whole, to_mapping(whole), "here") == whole


def test_the_file_teaches() -> None:
    assert dumps_config(Whole(rounds=3, panel=Path("a/b.fwp"))) == (
        "# Generations in all.\n"
        "rounds = 3\n"
        "# A second one.\n"
        "# other =\n"
        "# A file.\n"
        'panel = "a/b.fwp"\n'
        "# None draws one.\n"
        "# seed =\n"
        "# Where it runs.\n"
        'device = "cpu"\n'
        "# Whether to compile.\n"
        "compile = false\n"
        "# A number or a name.\n"
        "mixed = 0\n"
        "\n"
        "# The update rule.\n"
        "[learner]\n"
        "# Step size of Adam.\n"
        "#\n"
        "# A second paragraph.\n"
        "rate = 0.0001\n"
        "# Which learner.\n"
        'kind = "ddpg"\n'
        "# By name.\n"
        'columns = ["close", "rsi"]\n'
        "# A pair.\n"
        "span = [1, 2.0]\n"
    )


def test_numbers_of_numpy_are_taken_as_those_of_a_file() -> None:
    settings = {
        "rounds": np.int64(3),
        "compile": np.True_,
        "learner": {"rate": np.float64(0.5), "span": np.array([4, 5])},
    }
    built = from_mapping(Whole, settings, "here")
    assert built == from_mapping(
        Whole, {"rounds": 3, "compile": True, "learner": {"rate": 0.5, "span": [4, 5]}}, "here"
    )
    assert (type(built.rounds), type(built.learner.rate)) == (int, float)
    with pytest.raises(ConfigError, match=r"^here: rounds = \[1, 2\]: expected a whole number, got a list$"):
        from_mapping(Whole, {"rounds": np.array([1, 2])}, "here")


def test_a_whole_number_will_do_for_a_float_and_not_the_other_way() -> None:
    rate = from_mapping(Whole, {"rounds": 1, "learner": {"rate": 2}}, "here").learner.rate
    assert (rate, type(rate)) == (2.0, float)
    with pytest.raises(ConfigError, match=r"^here: rounds = 1\.0: .*a whole number.* a number$"):
        from_mapping(Whole, {"rounds": 1.0}, "here")


@pytest.mark.parametrize(
    ("given_mapping", "parts"),
    [
        ({"rounds": 1, "learner": {"raet": 1.0}}, ("here: learner.raet: ", '"rate"?')),
        (
            {"rounds": 1, "learner": {"xyz": 1}},
            ("here: learner.xyz: ", "rate, kind, columns, span"),
        ),
        ({"rounds": "many"}, ("here: rounds = 'many': ", "a whole number", " text")),
        ({"rounds": True}, ("here: rounds = true: ", "a whole number", " true or false")),
        ({"rounds": date(2020, 1, 2)}, ("here: rounds = 2020-01-02: ", "a whole number", " a date")),
        (
            {"rounds": datetime(2020, 1, 2, 3, tzinfo=UTC)},
            ("here: rounds = 2020-01-02T03:00:00+00:00: ", " a date with a time"),
        ),
        ({"rounds": time(12, 30)}, ("here: rounds = 12:30:00: ", "a whole number", " a time")),
        ({"rounds": {"a": [False]}}, ("here: rounds = {a = [false]}: ", "a whole number", " a table")),
        ({"rounds": 1, "learner": 5}, ("here: learner = 5: ", "a table of settings", " a whole number")),
        ({"rounds": 1, "device": {}}, ("here: device = {}: ", "text", " a table")),
        (
            {"rounds": 1, "learner": {"kind": "tdd3"}},
            ("here: learner.kind = 'tdd3': ", '"ddpg", "td3"', '"td3"?'),
        ),
        (
            {"rounds": 1, "learner": {"columns": ["close", 3]}},
            ("here: learner.columns[1] = 3: ", "text", " a whole number"),
        ),
        (
            {"rounds": 1, "learner": {"columns": "close"}},
            ("here: learner.columns = 'close': ", "a list (text)", " text"),
        ),
        ({"rounds": 1, "learner": {"span": [1]}}, ("here: learner.span = [1]: ", "2 entries", " 1")),
        ({"rounds": 1, "learner": {"span": [1, "x"]}}, ("here: learner.span[1] = 'x': ", "a number", " text")),
        ({"rounds": 1, "other": {"columns": [1]}}, ("here: other.columns[0] = 1: ", "text", " a whole number")),
        ({"rounds": 1, "panel": 3}, ("here: panel = 3: ", "a path, as text", " a whole number")),
        ({"rounds": 1, "mixed": []}, ("here: mixed = []: ", "a whole number or text", " a list")),
        ({}, ("here: rounds: ", "missing", "a whole number")),
        ({"rounds": 1, "learner": {"rate": -1.0}}, ("here: learner.rate = -1.0: ", "positive")),
    ],
)
def test_what_does_not_fit_is_named(given_mapping: dict[str, object], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refusal:
        from_mapping(Whole, given_mapping, "here")
    message = str(refusal.value)
    assert message.startswith(parts[0])
    assert all(part in message.removeprefix(parts[0]) for part in parts[1:])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            b"rounds = 3\nseed = = 4\n",
            r"TOML: Invalid value \(at line 2, column 8\).*'seed = = 4'",
        ),
        (b"rounds = 3\ndevice = '\xff'\n", r"UTF-8 \(byte 21\)"),
        (None, "No such file or directory"),
    ],
)
def test_an_unreadable_file_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "config.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as refusal:
        load_config(Whole, path)
    assert str(refusal.value).startswith(f"{path}: ")
    assert re.search(said, str(refusal.value))


@config
class Extended(Nested):
    """A part with more."""

    kind: Literal["ddpg", "td3"] = "td3"
    extra: int = 1
    """New here."""


def test_inherited_fields_keep_their_documentation() -> None:
    lines = dumps_config(Extended()).splitlines()
    assert lines[lines.index('kind = "td3"') - 1] == "# Which learner."
    assert lines[lines.index("extra = 1") - 1] == "# New here."


def test_a_class_without_source_is_dumped_without_comments() -> None:
    made = config(type("Made", (), {"__annotations__": {"rounds": int}, "rounds": 3, "__doc__": "Made in a session."}))
    assert dumps_config(made()) == "rounds = 3\n"


def test_a_file_of_a_windows_editor_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbfseed = 3\r\n")
    assert read_toml(path) == {"seed": 3}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("seed = 3".encode("utf-16"), "UTF-16"),
        ("seed = 3".encode("utf-16-be"), "UTF-8|TOML"),
        (gzip.compress(b"seed = 3", mtime=0), "gunzip"),
        (b"PK\x03\x04rest", "zip archive"),
        (lzma.compress(b"seed = 3"), "unxz"),
        (bz2.compress(b"seed = 3"), "bunzip2"),
    ],
)
def test_what_is_no_text_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        read_toml(path)
