"""Every number of every configuration and of every command has bounds, and is held to them wherever it comes from."""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flatwater
from flatwater.algorithms.config import Ramp
from flatwater.cli.main import command_class
from flatwater.cli.table import commands
from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.config.toml import load_config
from flatwater.recipes.grow.config import GrowRunConfig
from flatwater.recipes.teach.config import TeachRunConfig
from flatwater_trading.panel.config import SyntheticConfig
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_watch.errors import ConfigError
from flatwater_watch.options.bounds import Bounds, bounds_of, check_values

RUNS = (ErlRunConfig, GrowRunConfig, TeachRunConfig)
BEYOND = (float("inf"), float("-inf"), float("nan"), 2**62, 10**5000, -(10**5000), 1e300, -1e300)


def configurations() -> Iterator[type[Any]]:
    """Every dataclass of a module whose name ends in `config`, and every command."""
    for found in pkgutil.walk_packages(flatwater.__path__, "flatwater."):
        if found.name.endswith("config") and not found.ispkg:
            module = importlib.import_module(found.name)
            yield from (each for each in vars(module).values() if is_dataclass(each) and isinstance(each, type))
    yield from map(command_class, commands())


def holds_a_number(annotation: Any) -> bool:
    parts = get_args(annotation) or (annotation,)
    return any(part in {int, float} or (part is not annotation and holds_a_number(part)) for part in parts)


def numbers(cls: type[Any], above: str = "") -> Iterator[tuple[str, Bounds, Any]]:
    """Path, bounds and declaration of every number that a configuration and those in it have."""
    for field in fields(cls):
        plain = get_type_hints(cls)[field.name]
        if isinstance(plain, type) and is_dataclass(plain):
            yield from numbers(plain, f"{above}{field.name}.")
        elif field.name in bounds_of(cls):
            yield f"{above}{field.name}", bounds_of(cls)[field.name], plain


def test_every_number_has_bounds() -> None:
    seen = set(configurations()) - {Bounds}
    assert len(seen) > 40
    without = [
        f"{cls.__module__}.{cls.__qualname__}.{name}"
        for cls in seen
        for name, annotation in get_type_hints(cls).items()
        if name in {field.name for field in fields(cls)} and holds_a_number(annotation) and name not in bounds_of(cls)
    ]
    assert without == []


@pytest.mark.few(8)
@pytest.mark.parametrize("cls", RUNS)
@pytest.mark.parametrize("beyond", BEYOND, ids=lambda value: repr(value) if isinstance(value, float) else "whole")
def test_no_number_passes_that_is_not_finite_or_too_large(cls: type[Any], beyond: float) -> None:
    for path, bounds, kind in numbers(cls):
        *tables, name = path.split(".")
        mapping = to_mapping(cls())
        table = mapping
        for each in tables:
            table = table[each]
        value = beyond if not isinstance(beyond, int) or float not in {kind, *get_args(kind)} else None
        if value is None or (isinstance(value, float) and float not in {kind, *get_args(kind)}):
            continue  # a whole number where a fraction stands is a matter of types
        table[name] = [value] * 3 if get_origin(kind) is tuple else value
        with pytest.raises(ConfigError) as refused:
            from_mapping(cls, mapping, "a file")
        assert path in str(refused.value)
        assert str(bounds) in str(refused.value)


@given(value=st.floats(), low=st.floats(0, 10), more=st.floats(0, 10), above=st.booleans(), below=st.booleans())
def test_what_is_allowed_lies_between_the_ends(
    *, value: float, low: float, more: float, above: bool, below: bool
) -> None:
    bounds = Bounds(low, low + more, above=above, below=below)
    inside = (value > low if above else value >= low) and (value < low + more if below else value <= low + more)
    assert bounds.allows(value) == inside
    assert not bounds.allows("1")
    assert not bounds.allows(None)


def test_bounds_are_said_as_people_write_them() -> None:
    assert str(Bounds(0, 1e6)) == "a number from 0 to 1,000,000"
    assert str(Bounds(-(1 << 40), 1e-3, above=True)) == "a number above -1,099,511,627,776 and at most 0.001"
    assert str(Bounds(1, 8, words=("auto",))) == "a number from 1 to 8 or auto"


def test_code_options_and_files_are_held_to_the_same() -> None:
    with pytest.raises(ConfigError, match=r"synthetic\.days = 100000: .*2 to 65,536"):
        SyntheticConfig(days=100_000)
    with pytest.raises(ConfigError, match=r"synthetic\.days = 60000: .*2 to 512 .*65536"):
        SyntheticConfig(days=60_000, instruments=2**16)
    with pytest.raises(ConfigError, match=r"learner\.supervision\.begins = -1: .*0 to 1,099,511,627,776"):
        from_mapping(TeachRunConfig, {"learner": {"supervision": {"first": 1.0, "last": 0.0, "begins": -1}}}, "a file")


@pytest.mark.parametrize("text", ["a\0b", "\udcff"])
def test_text_that_no_file_can_keep_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"world = .*NUL"):
        TeachRunConfig(world=text)
    with pytest.raises(ConfigError, match=r"trackers\[0\]"):
        check_values(TeachRunConfig, {"trackers": (text,)}, "")


def test_a_ramp_without_a_slope_jumps() -> None:
    """`begins = ends` once divided by zero."""
    ramp = Ramp(first=1.0, last=0.25, begins=7, ends=7)
    assert [ramp.scheduled_value(step) for step in (0, 6, 7, 8)] == [1.0, 1.0, 0.25, 0.25]
    slope = Ramp(first=1.0, last=0.0, begins=10, ends=20)
    assert [slope.scheduled_value(step) for step in (0, 10, 15, 20)] == [1.0, 1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed = " + "9" * 5000, "TOML: "),
        ("seed = 0x" + "f" * 5000, "seed = a number of thousands of digits: "),
        ("seed = " + "[" * 5000, "nested too deeply"),
        (".".join(["a"] * 20_000) + " = 1", "more than 100 dots"),
        ('device = "a\\u0000b"', "NUL"),
        ("[learner.ddpg]\nactor_lr = inf", "learner.ddpg.actor_lr = inf: "),
        (f"[learner.ddpg]\nactor_lr = 1{'0' * 400}", "many digits"),
        ("threads = 1_000_000_000", "threads = 1000000000: "),
    ],
)
def test_a_hostile_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "my.toml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(ErlRunConfig, tmp_path / "my.toml")
    assert said in str(refused.value)
    assert len(str(refused.value)) < 1000
