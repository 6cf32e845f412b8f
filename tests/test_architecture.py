"""The rules of the code that no other tool holds: sizes, names, randomness, hidden waits, tests that test."""

import ast
import gc
import keyword
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = [ROOT / "packages" / package / "src" for package in ("watch", "flatwater", "trading")]
MODULES = sorted(path for source in SOURCES for path in source.rglob("*.py"))
PROGRAMS = [*MODULES, *(ROOT / "scripts").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
TESTS = sorted([*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "packages").glob("*/tests/**/test_*.py")])

LINES_OF_A_MODULE, LINES_OF_A_FUNCTION = 500, 50
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "core", "base", "manager", "managers", "handlers"}
TITLES = ("Manager", "Handler", "Helper", "Base", "Mixin")

COMPUTING = (
    *(f"flatwater/{name}/" for name in ("nets", "rollouts", "replay", "algorithms", "evolution", "envs", "trainers")),
    *(f"flatwater_trading/{name}/" for name in ("panel", "market", "policy", "training")),
)
COLD = {
    **dict.fromkeys(
        (
            "flatwater_trading/panel/laws.py",
            "flatwater_trading/panel/mapped_tensors.py",
            "flatwater_trading/panel/custom_features.py",
            "flatwater_trading/panel/normalise.py",
        ),
        "a panel is read on the CPU, once a run",
    ),
    **dict.fromkeys(
        (
            "flatwater_trading/market/gym_env.py",
            "flatwater_trading/market/vector_env.py",
            "flatwater_trading/market/spaces.py",
        ),
        "other people's loops give and are given NumPy's arrays, every step",
    ),
    **dict.fromkeys(
        (
            "flatwater/envs/foraging/game.py",
            "flatwater/envs/foraging/world.py",
            "flatwater/envs/random_teacher.py",
            "flatwater/envs/wrapped/actions.py",
            "flatwater/envs/wrapped/spaces.py",
            "flatwater/envs/wrapped/turns_world.py",
        ),
        "a world that is on the CPU",
    ),
    "flatwater/envs/conformance.py": "tries environments out, on the CPU",
    "flatwater/envs/wrapped/native_spaces.py": "observations and spaces of a trained policy's user, on the CPU",
    "flatwater/envs/kept_state.py": "what environments of the CPU keep: where an episode begins, and once a checkpoint",
    "flatwater_trading/market/baselines.py": "what traders are compared with, once a run",
    "flatwater_trading/market/cost_rates.py": "when the market is built",
    "flatwater_trading/market/orders.py": "the orders of one evening",
    "flatwater_trading/market/weight_rules.py": "what policies of weights are compared with, once a run",
    "flatwater_trading/market/score_rules.py": "what traders are compared with, once a run",
    "flatwater/trainers/episodes.py": "episodes of a world that is on the CPU",
    "flatwater/trainers/evaluator.py": "the same",
}
"""A module of the folders that compute -> why none of it stands in a hot loop on a device."""
WAITS = {"item", "cpu", "tolist", "numpy"}
MAY_WAIT = {
    **dict.fromkeys(
        (
            "flatwater/algorithms/learner.py::read_learner_",
            "flatwater/trainers/blocks/round.py::read_numbers_",
            "flatwater_trading/training/round.py::_summarise_episodes",
            "flatwater_trading/training/round.py::lineage_record",
            "flatwater_trading/training/round.py::read_numbers_",
            "flatwater/trainers/evolve/round.py::lineage_record",
            "flatwater/trainers/evolve/round.py::read_numbers_",
            "flatwater/trainers/grow/round.py::_training_numbers",
            "flatwater/trainers/grow/round.py::episodes_record",
        ),
        "a round's numbers are read once, when it is over",
    ),
    "flatwater/replay/priority.py::host_view": "it takes tensors of the host alone",
    "flatwater_trading/market/results.py::_closed_trades": "the trades of an evaluation, once a run",
    "flatwater_trading/market/results.py::trade_columns": "the same",
    "flatwater/nets/own_host.py::draw_": "once an episode: a class of the user's draws its weights in Python",
    "flatwater/trainers/blocks/collect.py::__init__": "views of what lies on the CPU, bound once",
    "flatwater/trainers/blocks/collect.py::_bind_world_rows_": "views of what lies on the CPU, bound once",
    "flatwater/trainers/blocks/policy_rollout.py::__init__": "views of what lies on the CPU, bound once",
    "flatwater/trainers/blocks/policy_rollout.py::act_": "the world is on the CPU: one copy of the actions a step",
    "flatwater/trainers/blocks/collect.py::_begin_block_": "of what lies on the CPU, once a block",
    "flatwater/trainers/blocks/collect.py::_begin_episodes_": "of what lies on the CPU",
    "flatwater/trainers/blocks/opponents.py::choose_": "games are on the CPU: one copy of the actions for each policy",
    "flatwater/trainers/blocks/collect.py::_teacher_actions_": "of what lies on the CPU",
    "flatwater/trainers/blocks/held_out_evaluator.py::act": "the world is on the CPU: one copy of the actions a step",
    "flatwater/trainers/blocks/held_out_evaluator.py::build_evaluator": "views of what lies on the CPU, bound once",
    **dict.fromkeys(
        (
            f"flatwater/trainers/logged_numbers.py::{function}"
            for function in ("add_number_", "report_", "take_numbers_")
        ),
        "sums of finished episodes lie on the CPU, as their world does",
    ),
    "flatwater/trainers/evolve/setup.py::world_actions": "the world is on the CPU: one copy of the actions a step",
    "flatwater/trainers/evolve/training_phase.py::__init__": "views of what lies on the CPU, bound once",
    "flatwater/trainers/evolve/training_phase.py::_begin_episodes_": "of what lies on the CPU",
    "flatwater/trainers/evolve/population_evaluator.py::draw_seeds": "of what lies on the CPU",
    "flatwater/algorithms/returns.py::gae": "on the CPU alone",
}
"""`module::function` -> why it may wait for the device: it is called once a round or less, or the number is there."""
COPIES = {"new_tensor", "tensor", "as_tensor", "from_numpy", "cuda", "to"}
"""What brings numbers from Python or the CPU to a device: the copy waits until the device has done all it was given."""
MAY_COPY = {
    **dict.fromkeys(
        (
            "flatwater/envs/growing/pool.py::build_envs",
            "flatwater/envs/growing/own_host.py::_try_host",
            "flatwater/envs/growing/own_host.py::_build_trial_hosts",
            "flatwater/envs/growing/task.py::_pixels_to_device",
            "flatwater/envs/growing/task.py::make_task",
            "flatwater/envs/growing/lifecycle.py::build_tables",
            "flatwater_trading/market/market.py::build_market",
            "flatwater/nets/actions.py::_middle_and_half_range",
            "flatwater/nets/actions.py::bound_tensors",
            "flatwater/nets/policy.py::build_statistics",
            "flatwater/replay/ring.py::_allocate_slots",
            "flatwater/trainers/evolve/training_phase.py::__init__",
            "flatwater/algorithms/learner.py::build_learner",
            "flatwater_trading/training/lessons.py::build_outcomes",
            "flatwater/trainers/grow/state.py::network",
            "flatwater/trainers/grow/state.py::init_action_bias_",
        ),
        "when the run is built",
    ),
    "flatwater_trading/market/results.py::trade_columns": "the trades of an evaluation, once a run",
    "flatwater/trainers/evolve/round.py::select_": "once a round",
    "flatwater/replay/priority.py::device_view": "the same memory, of a replay on the CPU alone",
    "flatwater/replay/ring.py::_row_array": "for other people's loops: whatever an environment gave, once a step",
    "flatwater/rollouts/sequences.py::gather": "what was collected may lie on the CPU, as its world: once a minibatch",
    "flatwater/rollouts/sequences.py::bind_sequences": "once an update",
    "flatwater/algorithms/on_policy.py::compute_targets_": "the state of a user's algorithm, once a round",
    "flatwater/algorithms/on_policy.py::advance_state_": "the state of a user's algorithm, once a round",
    "flatwater/trainers/on_policy.py::_merge_observations_": "the same rows, merged in parts once a round",
    "flatwater/algorithms/learner.py::evaluate_": "once a block",
    "flatwater/trainers/blocks/collect.py::_act_": "what the teacher did, and of several kinds of agents, on the CPU",
    "flatwater/trainers/blocks/policy_rollout.py::act_": "the world is on the CPU: one copy of its observations a step",
    "flatwater/trainers/blocks/policy_rollout.py::copy_outcome_": "of what lies on the CPU, for several kinds",
    "flatwater/trainers/blocks/policy_rollout.py::write_next_value_": "once a block, and where an episode was cut off",
    "flatwater/trainers/blocks/state.py::own_obs": "of what lies on the CPU",
    "flatwater/trainers/blocks/state.py::own_legal": "of what lies on the CPU",
    "flatwater/trainers/blocks/collect.py::_count_ended_episodes_": "to the CPU",
    "flatwater/trainers/blocks/held_out_evaluator.py::act": "the world is on the CPU: one copy of its rows a step",
    "flatwater/trainers/blocks/opponents.py::begin_": "of what lies on the CPU",
    "flatwater/trainers/blocks/opponents.py::choose_": "games are on the CPU: one copy of their observations a turn",
    "flatwater/trainers/evolve/training_phase.py::_act_": "the same",
    "flatwater/trainers/evolve/training_phase.py::_begin_episodes_": "where an episode begins",
    "flatwater/trainers/evolve/training_phase.py::step_": "to the CPU",
    "flatwater/trainers/evolve/population_evaluator.py::act": "the world is on the CPU: one copy of its rows a step",
    "flatwater/evolution/generation.py::first_generation": "once a run",
}
"""`module::function` -> why it may copy."""

GLOBAL_DRAWS = {
    "rand",
    "randn",
    "randint",
    "randperm",
    "normal",
    "bernoulli",
    "multinomial",
    "poisson",
    "rand_like",
    "randn_like",
}
IN_PLACE_DRAWS = {
    "uniform_",
    "normal_",
    "random_",
    "bernoulli_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "cauchy_",
}
NUMPY_GENERATORS = {"Generator", "default_rng", "SeedSequence", "PCG64", "BitGenerator", "get_state"}
PARTS = "packages/flatwater/tests/checkpoints/test_parts.py"
MAY_DRAW = {
    "flatwater/envs/exactness.py::temporary_generator_seeds": "other states must not matter: they are brought back",
    "flatwater/checkpoints/parts.py::_restore_generator_states": "other loops draw from them: they are restored",
    f"{PARTS}::_global_draws": "the same, for the next test",
    f"{PARTS}::step": "a loop, and an env, that do so",
    f"{PARTS}::reset": "the env",
    f"{PARTS}::test_an_environment_that_does_not_repeat_itself_is_told": "as other code",
    "packages/flatwater/tests/envs/test_conformance.py": "an env that does so, which the suite must find out",
    "benchmarks/trading/bench_learning_rivals.py::library": "the library that is compared with draws from it",
    "benchmarks/flatwater/bench_evolve.py::agile": "the same",
}

MAY_CATCH_ALL = {
    "flatwater/cluster/worker.py::answer_message": "the edge of a worker: the run is told, and ends",
    "flatwater/cli/main.py::run_to_end": "the edge of the process: a fault of ours is kept, and the user is told",
    "flatwater_watch/meters/fork.py::_work_and_exit": "the end of a forked process",
    "flatwater_watch/events/background.py::_send_lines": "the edge of a tracker's thread: the run goes on",
    "flatwater/rundir/listing.py::read_run_line": "the edge to files of anybody's making: one bad run costs its row",
    "flatwater/runs/recipe_parts.py::write_": "the edge to a recipe's code that only draws: no run ends by it",
    "flatwater/rundir/events.py::report_ending": "whatever ends a run is told to those who listen, and goes on",
    "flatwater_watch/agent/guard.py::run_or_default": "the edge between the watch and somebody else's program",
    "flatwater_watch/meters/collector.py::signal_safe_turns": "the edge to the collector: it is raised later",
    "flatwater_watch/agent/inject/sitecustomize.py::_start_if_asked": "the same edge, before the watch can be imported",
    "flatwater_watch/agent/guard.py::_belongs_to_program": "the same edge: the program may have replaced what is asked",
    "flatwater_watch/agent/guard.py::_end_after_fault": "the same edge: then the fault is not told",
    "flatwater/envs/exactness.py::try_exactness": "the edge to a user's class: the run says whose what it raises is",
    "flatwater/envs/exactness.py::_replay_difference": "the same edge: a refusal is a difference like any other",
    "flatwater/envs/exactness.py::try_whole_episode": "the same edge again",
    "flatwater/envs/makers.py::_copy_env": "the same edge: what it cannot be copied by is told",
    "flatwater/envs/open_envs.py::close_open_envs": "the same edge: what it was built for is done, and its result kept",
    "flatwater/envs/worker_world.py::_answer_call": "the edge of a process that steps environments: the run raises it",
    "flatwater/trainers/episodes.py::replay_episodes_": "the same edge: a class that is another by now",
    "flatwater/plugins.py::add_": "the edge to other people's packages: a broken one adds nothing, and stops nobody",
    "flatwater/plugins.py::load_row": "the same edge: what such a package promised is told with its name",
    "flatwater/reports/recipe_parts.py::installed_parts": "the same edge: such a part says so in its place",
    "flatwater_watch/heap/children.py::open_object": "the edge to a foreign object: it is counted as unread",
}
"""`module::function` -> the process or thread edge where it stands."""

OPENING = {"open", "read_text", "read_bytes", "write_text", "write_bytes"}
MAY_OPEN = {
    **dict.fromkeys(
        (
            "flatwater_watch/files/regular_files.py::_open_regular",
            "flatwater/storage/folders.py::open_listed_file",
            "flatwater_watch/files/directory.py::open_at_once",
            "flatwater_watch/files/output.py::_open_folder",
            "flatwater/runs/started_runs.py::_open_record_folder",
            "flatwater/runs/started_runs.py::record_run",
            "flatwater/rundir/layout.py::hold_lock",
        ),
        "the homes of opening: regular files only, folders by descriptor, no link where others write",
    ),
    "flatwater_watch/lazy.py::_read_stub": "a file of the package itself, before anything else is imported",
    **dict.fromkeys(
        (
            "flatwater_watch/files/directory.py::_write_synced_file",
            "flatwater_watch/files/directory.py::_sync_path",
            "flatwater_watch/files/directory.py::_is_abandoned",
            "flatwater/runs/profiling.py::_export_trace",
        ),
        "a file that is made there, under a name that nobody has",
    ),
    **dict.fromkeys(
        (
            "flatwater_watch/streams.py::__init__",
            "flatwater_watch/streams.py::open_closed_descriptors",
            "flatwater_watch/streams.py::redirect_to_null",
        ),
        "/dev/null, for streams",
    ),
    **dict.fromkeys(
        ("flatwater/storage/url_lock.py::_machine_identity", "flatwater/storage/url_lock.py::process_start"), "/proc"
    ),
    **dict.fromkeys(
        ("flatwater_watch/pages/asset_files.py::read_asset", "flatwater_trading/panel/locate.py::name_in_cache"),
        "a package's own file",
    ),
    "flatwater/runs/trackers.py::open_sink": "opens no file",
}
"""`module::function` -> why it may open a file itself; all else goes through `regular_files.py` and `storage/`."""
WRITING = {
    "write_object",
    "replace_whole",
    "open",
    "write_text",
    "write_bytes",
    "savefig",
    "write_csv",
    "write_parquet",
}
INSIDE = tuple(f"flatwater_watch/{name}/" for name in ("agent", "diagnose", "heap", "meters", "series", "faces"))
"""Folders of the finder: it reads what the system says of processes, and has notes of its own."""
NAMES_FILES = (
    "flatwater/cli/",
    "flatwater/api.py",
    "flatwater/comparisons/",
    "flatwater_trading/cli/",
    "flatwater_watch/faces/command.py",
    "flatwater_trading/recipe/positions.py",
    "flatwater/runs/policy_export.py",
)
"""What takes names of files to write from users."""
MAY_WRITE = {
    "flatwater_trading/cli/study.py::write_pages": "report.html and study.png in the study's own folder",
    "flatwater_watch/faces/command.py::_save_last_result": "last.json, which no user names",
    "flatwater_trading/cli/position_orders.py::_orders_as_csv": "to stdout",
}
"""`module::function` -> why it writes otherwise than by `storage/output.py`."""

ASSERTING = ("assert_", "check_", "raises", "warns", "fail")


@pytest.fixture(scope="module", autouse=True)
def _trees_are_looked_at_once() -> Iterator[None]:
    """Not by the collector: they are millions of objects. Tests that come later do not carry them along."""
    gc.disable()
    yield
    tree.cache_clear()
    gc.enable()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def name(path: Path) -> str:
    return str(path.relative_to(next((source for source in SOURCES if path.is_relative_to(source)), ROOT)))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def calls(node: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Each call with the dotted name of what it calls; what stands before the last dot is empty for expressions."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            yield call, dotted_name(call.func)


def dotted_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def place(path: Path, node: ast.expr | ast.stmt | ast.excepthandler) -> str:
    """`module::function`, with the innermost function around the node, or the module alone at its top level."""
    around = [f for f in functions(path) if f.lineno <= node.lineno <= (f.end_lineno or f.lineno)]
    return f"{name(path)}::{max(around, key=lambda f: f.lineno).name}" if around else name(path)


def test_modules_and_functions_stay_readable() -> None:
    long = [name(path) for path in PROGRAMS if len(path.read_text().splitlines()) > LINES_OF_A_MODULE]
    for path in PROGRAMS:
        for f in functions(path):
            lines = (f.end_lineno or f.lineno) - f.lineno + 1
            if lines > LINES_OF_A_FUNCTION:
                long.append(f"{name(path)}::{f.name} ({lines} lines)")
    assert not long


def test_each_module_says_what_it_is() -> None:
    assert [name(path) for path in PROGRAMS if not ast.get_docstring(tree(path))] == []


NAMELESS = re.compile(r"^ +[a-z_]+: (?:of|that|as|by|with|where) .*", re.MULTILINE)
"""An argument that is described without a noun, such as `days: of each slice`."""


def test_each_argument_is_described_by_a_noun() -> None:
    """A fragment leaves the reader to guess what of the slice, or of the run, is given."""
    documented = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nameless = [
        f"{place(path, node)}: {line.strip()}"
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, documented)
        for line in NAMELESS.findall(ast.get_docstring(node) or "")
    ]
    assert not nameless, "\n".join(nameless)


OFFERS_NAMES = [
    "from flatwater_watch.lazy import offer_names",
    "__getattr__, __dir__ = offer_names(__name__)",
]
"""Besides its docstring, what a package with public names consists of; they are in its `__init__.pyi`."""


def test_packages_hold_a_docstring_and_public_names() -> None:
    """A package costs nothing to import."""
    packages = [path for path in MODULES if path.name == "__init__.py" and path.parent.parent not in SOURCES]
    for path in packages:
        wanted = OFFERS_NAMES if path.with_suffix(".pyi").exists() else []
        assert [ast.unparse(node) for node in tree(path).body[1:]] == wanted, name(path)


def test_public_names_are_for_users() -> None:
    """Our own imports come from the module itself, so that they show what needs what."""
    offering = {name(path.parent).replace("/", ".") for path in MODULES if path.with_suffix(".pyi").exists()}
    assert offering
    two = []
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module in offering:
                folder = next(source for source in SOURCES if source in path.parents) / node.module.replace(".", "/")
                modules = {child.stem for child in folder.glob("*")} | {"__version__"}
                two += [f"{name(path)}: {alias.name}" for alias in node.names if alias.name not in modules]
    assert two == []


def test_nothing_is_put_in_a_drawer() -> None:
    drawers = [name(path) for path in PROGRAMS if DRAWERS & {*path.relative_to(ROOT).with_suffix("").parts}]
    for path in PROGRAMS:
        classes = (node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef))
        drawers += [f"{name(path)}::{c.name}" for c in classes if c.name.startswith("Base") or c.name.endswith(TITLES)]
    assert not drawers


PREPOSITION = re.compile(
    "(?:^|_)(?:of|in|at|by|on|to|from|with|for|since|until|till|after|before|between|within|without|under|into|onto|upon|"
    "above|below|beyond|besides?|behind|through|during|per|as|than|via|around|against|along|towards?|because|when|where|"
    "while|if|so|about)_?$"
)
MAY_END_SO = {
    "flatwater_trading/recipe/trader.py::features_of": "public: in the pages on exported traders",
    "flatwater_trading/recipe/weights/trader.py::signals_of": "the same of weights",
    "flatwater_watch/options/bounds.py::bounds_of": "public, of `flatwater.config`",
    **dict.fromkeys(
        (
            "flatwater/runs/run.py::about",
            "flatwater/runs/world_run.py::about",
            "flatwater/recipes/teach/run.py::about",
            "flatwater_trading/recipe/run.py::about",
            "flatwater_trading/recipe/weights/run.py::about",
        ),
        "public, of the protocol `Run`",
    ),
}
"""`module::function` -> why it ends in a preposition."""


def test_no_function_ends_in_a_preposition() -> None:
    """A name such as `owners_of` leaves out what it is of, and `_continue_until` what goes on."""
    endings = {f"{name(path)}::{f.name}" for path in MODULES for f in functions(path) if PREPOSITION.search(f.name)}
    assert endings == set(MAY_END_SO)


def waits(call: ast.Call, called: str) -> bool:
    """Whether it reads numbers of a device."""
    return "." in called and called.rsplit(".", 1)[1] in WAITS and not call.args and not call.keywords


def hot(kind: Callable[[ast.Call, str], bool]) -> set[str]:
    """Where there are such calls in the folders that compute, apart from modules that are cold."""
    paths = [path for path in MODULES if name(path).startswith(COMPUTING) and name(path) not in COLD]
    return {place(path, call) for path in paths for call, called in calls(tree(path)) if kind(call, called)}


def test_hot_paths_do_not_wait_for_the_device() -> None:
    """A number that is read in the inner loop stops the device until it is there; it is read once a round."""
    assert hot(waits) == set(MAY_WAIT)


def copies(call: ast.Call, called: str) -> bool:
    """Whether it brings something to a device: `to` does, unless it names a type alone."""
    head, _, function = called.rpartition(".")
    if function not in COPIES or not (head or "." in called):
        return False
    return function != "to" or not all(dotted_name(given).endswith(("dtype", "torch.float32")) for given in call.args)


def test_hot_paths_do_not_copy_to_the_device() -> None:
    """The market, the networks and all that is drawn are there already; numbers are filled in, and not copied."""
    assert hot(copies) == set(MAY_COPY)


def test_a_module_is_cold_only_where_it_waits_or_copies() -> None:
    found = {
        name(path)
        for path in MODULES
        if name(path) in COLD
        for call, called in calls(tree(path))
        if waits(call, called) or copies(call, called)
    }
    assert found == set(COLD)


def draws_globally(call: ast.Call, called: str) -> bool:
    head, _, function = called.rpartition(".")
    given = {keyword.arg for keyword in call.keywords}
    if head in {"np.random", "numpy.random"}:
        return function not in NUMPY_GENERATORS
    if head == "torch":
        return function in {"manual_seed", "seed"} or (function in GLOBAL_DRAWS and "generator" not in given)
    if function in IN_PLACE_DRAWS:
        return "generator" not in given
    return False


def test_nothing_draws_from_a_global_generator() -> None:
    paths = [*PROGRAMS, *TESTS]
    draws = {place(p, call) for p in paths for call, called in calls(tree(p)) if draws_globally(call, called)}
    for path in paths:
        if "random" in imported_modules(path):  # elsewhere it is the name of a variable
            used = [(call, called) for call, called in calls(tree(path)) if called.startswith("random.")]
            draws |= {place(path, call) for call, called in used if called not in {"random.Random", "random.getstate"}}
    assert draws == set(MAY_DRAW)


def test_exceptions_are_caught_by_name() -> None:
    broad = set()
    for path in PROGRAMS:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ExceptHandler):
                caught = [] if node.type is None else [dotted_name(t) for t in getattr(node.type, "elts", [node.type])]
                if not caught or {"Exception", "BaseException"} & {*caught}:
                    broad.add(place(path, node))
    assert broad == set(MAY_CATCH_ALL)


def opens(called: str) -> bool:
    """Whether it opens a file: `open`, and methods of that name of whatever but a store, a stream, a screen."""
    return called.rsplit(".", 1)[-1] in OPENING and not called.startswith(("self.", "watched."))


def test_files_are_opened_in_one_way() -> None:
    """A pipe waits for ever, a device never ends, a link in a folder of somebody else's leads where they want."""
    paths = [path for path in MODULES if not name(path).startswith(INSIDE)]
    found = {place(path, call) for path in paths for call, called in calls(tree(path)) if opens(called)}
    assert found <= set(MAY_OPEN)


def test_what_a_user_names_is_written_in_one_way() -> None:
    """Or else an option that is mistyped replaces a configuration by a page."""
    paths = [path for path in MODULES if name(path).startswith(NAMES_FILES)]
    found = {
        place(path, call)
        for path in paths
        for call, called in calls(tree(path))
        if called.rsplit(".", 1)[-1] in WRITING
    }
    assert found <= set(MAY_WRITE)


def test_attributes_are_declared_not_probed() -> None:
    probes = [
        place(path, call)
        for path in PROGRAMS
        for call, called in calls(tree(path))
        if called == "hasattr" or (called == "getattr" and len(call.args) > len(("object", "name")))
    ]
    assert not probes


READERS = (
    *(
        f"flatwater/{name}/"
        for name in ("rundir", "reports", "tui", "comparisons", "mirror", "metrics", "storage", "checkpoints")
    ),
    *(
        "flatwater/description.py",
        "flatwater/runs/catch_up.py",
        "flatwater_watch/format_strings.py",
        "flatwater_watch/phrases.py",
        "flatwater_watch/pages/",
    ),
    *("flatwater_watch/files/", "flatwater_watch/faces/page.py", "flatwater_watch/faces/watch_result.py"),
)
IMPORTERS = {
    "find_recipe",
    "recipe_of",
    "recipe_for",
    "recipe_in",
    "find_object",
    "import_object",
    "import_named_module",
}
IMPORTERS |= {"import_module", "__import__", "exec", "eval", "read_config"}
MAY_IMPORT: dict[str, str] = {}
"""`module::function` -> what it imports."""


def test_what_reads_a_run_imports_no_name_of_a_file() -> None:
    """Only `find_installed_recipe` leads from a folder to a recipe: it looks a name up in installed packages."""
    paths = [path for path in MODULES if name(path).startswith(READERS)]
    found = {place(p, call) for p in paths for call, called in calls(tree(p)) if called.rpartition(".")[2] in IMPORTERS}
    assert found <= set(MAY_IMPORT), "a reader would import what a file names"
    banned = {f"flatwater.{module}.{each}" for module in ("recipe", "named_imports") for each in IMPORTERS}
    banned |= {"pickle", "runpy", "flatwater.runs.session.read_config"}
    assert [name(path) for path in paths if banned & {*imported_modules(path)}] == []


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_banned_imports() -> None:
    """Mocks re-type the implementation; postponed annotations hide shapes from the checker at run time."""
    banned = {"unittest.mock", "mock", "__future__.annotations"}
    assert [name(path) for path in [*PROGRAMS, *TESTS] if banned & {*imported_modules(path)}] == []


def test_every_test_can_fail() -> None:
    """Each test asserts, or calls a function of its file that does."""
    idle = []
    for path in TESTS:
        bodies = {f.name: f for f in functions(path)}
        for title, f in bodies.items():
            if title.startswith("test_") and not asserts(f, bodies, frozenset()):
                idle.append(f"{name(path)}::{title}")
    assert not idle


def asserts(f: ast.AST, bodies: dict[str, ast.FunctionDef | ast.AsyncFunctionDef], seen: frozenset[str]) -> bool:
    if any(isinstance(node, ast.Assert) for node in ast.walk(f)):
        return True
    called = {full.rsplit(".", 1)[-1] for _, full in calls(f)}
    if any(function.startswith(ASSERTING) for function in called):
        return True
    return any(asserts(bodies[g], bodies, seen | {g}) for g in called & bodies.keys() - seen)


def test_the_command_line_and_all_configurations_start_without_torch() -> None:
    """`flatwater --help` must not wait seconds for imports, and `flatwater plan` must run where nothing trains."""
    modules = ["flatwater.cli.main", "flatwater.config.toml", "flatwater_watch.meters.process"]
    modules += [name(path)[:-3].replace("/", ".") for path in MODULES if path.name == "config.py"]
    program = f"import sys, {', '.join(modules)}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    loaded = ran.stdout.split()
    assert {"torch", "polars", "gymnasium", "matplotlib", "talib", "scipy"} & {*loaded} == set()
    assert "flatwater" in loaded


QUOTED_NAME = re.compile(r"(?<!`)`([A-Za-z_][A-Za-z0-9_.]*)(?:\(\))?`(?!`)")
FILE_ENDINGS = (".py", ".pyi", ".toml", ".json", ".jsonl", ".js", ".css", ".j2", ".html", ".md")
NAMES_FROM_ELSEWHERE = {
    "CPython": {
        "PyFrameObject", "PyThreadState_SetAsyncExc", "PyTrace_RETURN", "Py_TPFLAGS_HEAPTYPE", "Py_tracefunc",
        "_PyInterpreterFrame", "__class__", "__eq__", "__hash__", "__main__", "exec", "make_dataclass", "namedtuple",
        "monitoring", "os_fork_impl", "warn_about_fork_with_threads",
    },
    "the system": {"__WALL", "nohup", "ps", "sigset_t", "start_brk"},
    "libraries": {
        "ParallelEnv", "RecordWriter", "Ridge", "SummaryWriter", "_pytest", "approx_kl", "check_env", "env_kwargs",
        "lowbias32", "moto", "s3_backends",
    },
    "data and examples": {
        "AAPL", "AAPL_close", "AAPL_my_signal", "AAPL_signal", "Agent", "BUFFER", "Bearer", "CACHE", "SPY", "X",
        "_cash", "_day", "_equity", "_key", "_name", "_pct", "boundary", "close_AAPL", "erl", "flatwater_acme",
        "forage", "monthly", "my_signal", "null", "page_strings", "return_120", "return_60", "rsi", "tempo", "test_env",
        "true", "week", "weekly",
    },
}  # fmt: skip
"""Names in docstrings that are no token of the code, by their origin."""


def docstrings(module: ast.Module) -> Iterator[ast.Constant]:
    """The texts below modules, classes, functions and fields."""
    for node in ast.walk(module):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str()) as text):
                    yield text


def words_of_code(path: Path) -> set[str]:
    """The words of a module outside of docstrings and comments."""
    prose = {line for text in docstrings(tree(path)) for line in range(text.lineno, (text.end_lineno or 0) + 1)}
    code = (line for number, line in enumerate(path.read_text().splitlines(), 1) if number not in prose)
    return {word for line in code for word in re.findall(r"\w+", re.sub(r"(^|\s)# .*", "", line))}


def test_names_in_docstrings_are_names_of_the_code() -> None:
    """A sentence outlives a rename easily. Private names are those of the same module."""
    elsewhere = set(keyword.kwlist).union(*NAMES_FROM_ELSEWHERE.values())
    own_words = {path: words_of_code(path) | elsewhere for path in MODULES}
    words = set[str]().union(*own_words.values())
    unknown = []
    for path, own in own_words.items():
        for text in docstrings(tree(path)):
            for quoted in QUOTED_NAME.findall(str(text.value)):
                parts = [part for part in quoted.split(".") if part]
                is_private = len(parts) == 1 and parts[0].startswith("_") and not parts[0].startswith("__")
                if not quoted.endswith(FILE_ENDINGS) and not (own if is_private else words).issuperset(parts):
                    unknown.append(f"{name(path)}:{text.lineno}: `{quoted}`")
    assert not unknown, "\n".join(unknown)
