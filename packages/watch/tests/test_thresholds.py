"""Numbers that decide a verdict stand in one value, each with unit and reason; what only costs stays with a meter."""

import ast
from pathlib import Path

import flatwater_watch.thresholds

MEMORY = Path(flatwater_watch.thresholds.__file__).parent
METERS = {
    "series/slope.py": {"MAXIMUM_POINTS"},
    "series/readings.py": {"POINTS_JUDGED_ALWAYS", "TURN_COUNT"},
    "diagnose/code_use.py": {"MAXIMUM_DECORATORS", "MAXIMUM_REMEMBERED", "MAXIMUM_PARAMETERS"},
    "diagnose/contents.py": {"MAXIMUM_LEAVES", "ARRAY_PREFERENCE"},
    "diagnose/newest_items.py": {"MAXIMUM_OPENED", "SAMPLED_SET_ITEMS", "SAMPLED_SET_RANGE", "CHILDREN_PER_ITEM"},
    "diagnose/redundancy.py": {"MAXIMUM_SHIFT", "MAXIMUM_ELEMENTS"},
    "diagnose/container_calls.py": {"KEPT_ITEMS"},
    "diagnose/evidence.py": {"MAXIMUM_CYCLE_HOPS"},
    "diagnose/finding_text.py": {"WIDTH", "LABEL_WIDTH"},
    "diagnose/garbage.py": {
        "MAIN_SHARE", "MAXIMUM_RANKED", "MAXIMUM_CYCLE_TRIES", "MAXIMUM_CYCLE_OBJECTS", "DRAWN_ATOMS",
    },
    "diagnose/lines.py": {"FRAMES", "DEEP_FRAMES", "MAXIMUM_CONTENTS"},
    "diagnose/series_evidence.py": {"POINTS_JUDGED_ALWAYS"},
    "diagnose/hops.py": {"MAXIMUM_WAY_CONTAINERS", "SPREAD_WAY_CONTAINERS", "MAXIMUM_SPREAD_ITEMS"},
    "diagnose/item_growth.py": {"NEWEST_ITEMS"},
    "agent/growth.py": {"MAXIMUM_SAMPLES", "MINIMUM_COUNT", "MINIMUM_COUNT_PER_HALF"},
    "agent/start_in_process.py": {"MAXIMUM_NAMES", "WORKER_SECONDS", "MAXIMUM_WORKERS", "GUEST_CHECK_TICKS"},
    "agent/runner_protocol.py": {"PAGE_BYTES"},
    "agent/spool.py": {"MINIMUM_GAP_SECONDS", "MAXIMUM_TIME_SHARE"},
    "faces/runner_folder.py": {"STALE_SECONDS", "MAXIMUM_NOTES", "NOTE_BYTES"},
    "faces/bounded_result.py": {"MAXIMUM_FINDINGS", "OTHER_BYTES", "PIECE_BYTES", "MAXIMUM_POINTS"},
    "agent/boundaries.py": {"STOPPED_SECONDS", "TICK_SECONDS", "MAXIMUM_TICKS", "EXCLUSION_SECONDS"},
    "faces/run_comparison.py": {
        "MINIMUM_BYTES", "MINIMUM_SHARE", "MAXIMUM_OWNERS", "NAME_WIDTH", "NUMBER_WIDTH", "SAME_CHANGE_SHARE",
    },
    "faces/context.py": {"PRINT_COLUMNS", "MINIMUM_SEARCH_GAP_SECONDS", "SEARCH_TIME_SHARE"},
    "diagnose/declared_bounds.py": {"_MINIMUM_STEM"},
    "diagnose/release_search.py": {"MAXIMUM_CALLS", "_CALL_DEPTH", "_MAXIMUM_PASSING_CALLS"},
    "faces/holders.py": {"MAXIMUM_OBJECTS", "MAXIMUM_CHAIN_HOPS", "MAXIMUM_KEY_LETTERS"},
    "agent/census_history.py": {"CENSUS_INTERVAL_FACTOR", "MAXIMUM_CENSUSES", "MAXIMUM_OWNERS"},
    "faces/command.py": {"FINDING_SECONDS"},
    "faces/main.py": {"INTERRUPTED"},
    "faces/page.py": {
        "AXIS_MARGIN_SHARE",
        "MAXIMUM_NAME_LETTERS", "WELL_EXPLAINED_SHARE", "FORECAST_RATIO", "FORECAST_SHARE", "MINIMUM_SPAN_SHARE",
        "MINIMUM_SPAN_BYTES", "MINIMUM_CLOCK_UNITS",
    },
    "faces/attach_inside.py": {"GDB_SECONDS", "ANSWER_SECONDS", "POLL_SECONDS"},
    "faces/attach_outside.py": {"READING_COUNT"},
    "agent/budget.py": {"FIRST_SECONDS", "CREDIT_SECONDS", "CREDIT_SHARE", "TRACED_COST_SHARE"},
    "agent/reading_schedule.py": {
        "FIRST_GAP_SECONDS", "FIRST_READINGS", "MINIMUM_GAP_SECONDS", "PLAIN_SHARE", "SLICE_SECONDS",
        "LEAST_SLICE_SECONDS",
        "SLICE_SHARE", "FIRST_INVESTIGATION_GAP", "MAXIMUM_GAP_SECONDS", "RECENT_READINGS", "UNPAID_GAP_SECONDS",
        "REGULAR_COUNT", "LAST_DOUBLING",
        "DOUBLING_RESUMES", "STALE_TRACE_SECONDS",
        "RSS_CHECK_SECONDS", "RESET_CHECK_TICKS", "RESET_CHECK_SHARE", "ALLOCATING_CPU_SECONDS",
    },
    "agent/inject/sitecustomize.py": {"_OLDEST"},
    "agent/filling_arrays.py": {"MAXIMUM_ARRAYS"},

    "agent/reading.py": {"MINIMUM_READINGS", "MINIMUM_RATE_CPU_SECONDS", "MAXIMUM_CLASSES"},
    "faces/runner.py": {"SIGNAL_EXIT_BASE"},
    "agent/boundary_sampling.py": {
        "FREQUENT_PER_SECOND", "SAMPLE_INTERVAL_SECONDS", "MAXIMUM_UNREPORTED", "ROUNDS_PER_SAMPLE",
        "REVIEW_SECONDS", "GOLDEN_FRACTION",
    },
    "agent/main_thread_timer.py": {"IDLE_SECONDS"},
    "faces/summary_lines.py": {"MINIMUM_KEPT_SHARE", "MINIMUM_SHARE_SECONDS", "MAXIMUM_NAMES", "RESTING_RATIO"},
    "agent/workers.py": {"MAXIMUM_TIME_SHARE", "INITIAL_CREDIT_SECONDS", "MINIMUM_GAP_SECONDS"},
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
                assert isinstance(field, ast.AnnAssign), part.name
                assert isinstance(sentence, ast.Expr), ast.unparse(field)
                assert isinstance(sentence.value, ast.Constant)
                assert len(str(sentence.value.value)) > len("Part of the growth."), ast.unparse(field)
