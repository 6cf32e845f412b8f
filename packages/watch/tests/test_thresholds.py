"""Numbers that decide a verdict stand in one value, each with unit and reason; what only costs stays with a meter."""

import ast
from pathlib import Path

import flatwater_watch.thresholds

MEMORY = Path(flatwater_watch.thresholds.__file__).parent
METERS = {
    "series/slope.py": {"POINTS"},
    "series/readings.py": {"SOON", "TURNS"},
    "diagnose/contents.py": {"LEAVES", "MOST", "LARGEST_SHIFT", "MOST_ELEMENTS", "SAMPLED", "FAR"},
    "diagnose/finding_text.py": {"BRIEF", "WIDTH", "LABEL"},
    "diagnose/garbage.py": {"MOSTLY", "MOST", "TRIED", "LONGEST"},
    "diagnose/lines.py": {"FRAMES", "DEEP_FRAMES", "CONTENTS"},
    "diagnose/series_findings.py": {"COSTS_SOON"},
    "diagnose/owners.py": {"ASKED", "LATEST"},
    "agent/growth.py": {"ROWS", "SELDOM", "EACH_HALF"},
    "agent/start_in_process.py": {"NAMED", "WORKER_SECONDS", "MOST_WORKERS", "LOOKED_AT"},
    "agent/runner_protocol.py": {"PAGE_BYTES"},
    "agent/spool.py": {"EVERY", "SHARE"},
    "faces/folder.py": {"STALE_SECONDS", "MOST_NOTES", "NOTE_BYTES"},
    "faces/bounded_result.py": {"FINDINGS", "OTHER_BYTES", "PIECE", "POINTS"},
    "agent/boundaries.py": {"TICK_SECONDS", "RESTING", "ALONE"},
    "faces/run_comparison.py": {"LEAST_BYTES", "LEAST_SHARE", "MOST", "NAME", "NUMBER", "OF_ANOTHER"},
    "faces/context.py": {"COLUMNS", "LOOK_EVERY", "LOOK_SHARE"},
    "faces/holders.py": {"MOST", "BACKWARDS"},
    "agent/census_history.py": {"LATER", "MOST", "OWNERS"},
    "faces/command.py": {"FINDING_SECONDS"},
    "faces/main.py": {"INTERRUPTED"},
    "faces/page.py": {"MOST_LETTERS", "WELL_EXPLAINED", "AHEAD", "GLIMPSE", "LEAST_SPAN", "LEAST_CHANGE", "LONG"},
    "faces/attach_inside.py": {"STOPPED_SECONDS", "ANSWER_SECONDS", "LOOK_SECONDS"},
    "faces/attach_outside.py": {"LOOKS"},
    "agent/reading_schedule.py": {
        "QUICK", "QUICK_READINGS", "USUAL", "SHARE", "CREDIT", "DEEP_SHARE", "COUNTING_SHARE", "PROVEN_SHARE", "SLICE",
        "SLICE_SHARE", "TRACED", "INVESTIGATING", "LONGEST", "RECENT", "REGULAR", "NEAR",
        "FAR", "BETWEEN", "FIRST_CREDIT", "CREDIT_AGE", "SHORT_SLICE",
    },
    "agent/inject/sitecustomize.py": {"_OLDEST"},
    "agent/filling_arrays.py": {"MOST"},
    "agent/process.py": {"GLANCE", "HURRIED", "GIVES_WAY", "LEVELS", "LONG"},
    "agent/reading.py": {"FEWEST", "RATE_CPU", "TOLD"},
    "faces/runner.py": {"KILLED"},
    "agent/boundary_sampling.py": {"OFTEN", "EVERY", "MOST", "ROUNDS", "REVIEW", "GOLDEN"},
    "agent/main_thread_timer.py": {"RESTED"},
    "faces/terminal.py": {"TOLD_SHARE", "FEW_SECONDS", "NAMED"},
    "agent/workers.py": {"SHARE", "CREDIT", "EVERY"},
}  # fmt: skip
"""Constants that decide how often is read, how much is kept and how wide is written: no verdict."""


def numbers_of(path: Path) -> set[str]:
    """Names of a module's own that are bound to numbers."""
    found = set[str]()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and all(
            isinstance(part, ast.Constant | ast.BinOp | ast.UnaryOp | ast.Tuple | ast.operator | ast.unaryop | ast.Load)
            and not (isinstance(part, ast.Constant) and not isinstance(part.value, int | float))
            for part in ast.walk(node.value)
        ):
            found |= {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return found


def test_numbers_that_decide_stand_in_one_value() -> None:
    paths = [path for folder in ("series", "diagnose", "agent", "faces") for path in (MEMORY / folder).rglob("*.py")]
    found = {path.relative_to(MEMORY).as_posix(): numbers_of(path) for path in paths}
    assert {path: names for path, names in found.items() if names} == METERS


def test_each_threshold_says_its_unit_and_its_reason() -> None:
    """A sentence stands below each field, and says so where no measurement is behind the number."""
    for part in ast.parse((MEMORY / "thresholds.py").read_text()).body:
        if isinstance(part, ast.ClassDef):
            body = part.body[1:]
            for field, sentence in zip(body[::2], body[1::2], strict=False):
                if part.name != "Thresholds":
                    assert isinstance(field, ast.AnnAssign), part.name
                    assert isinstance(sentence, ast.Expr), ast.unparse(field)
                    assert isinstance(sentence.value, ast.Constant)
                    assert len(str(sentence.value.value)) > len("Part of the growth."), ast.unparse(field)
