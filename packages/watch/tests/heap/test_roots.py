"""Whose code it is, and where the walk begins."""

import gc
import sys
import sysconfig
import threading
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

import flatwater
import flatwater_watch
from flatwater_watch.heap import census
from flatwater_watch.heap.locals import frame_locals
from flatwater_watch.heap.roots import (
    MANY_THREADS,
    THREADS_TABLE,
    Roots,
    _thread_roots,
    is_user_file,
    named_roots,
    source_file,
)
from flatwater_watch.meters.program_faults import is_program_fault

Load = Callable[[str], ModuleType]
PACKAGE, TOOL = Path(flatwater.__file__).parent, Path(flatwater_watch.__file__).parent


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("/home/me/train.py", True),
        ("train.py", True),
        ("/home/me/.venv/lib/python3.11/site-packages/torch/nn/modules/module.py", False),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", False),
        (sysconfig.get_path("stdlib") + "/json/decoder.py", False),
        (sysconfig.get_path("stdlib") + "_of_mine/train.py", True),
        ("<string>", True),
        ("<stdin>", True),
        ("<ipython-input-3-abc>", True),
        ("<frozen importlib._bootstrap>", False),
        ("<__array_function__ internals>", False),
        (str(PACKAGE / "runs" / "session.py"), False),
        (census.__file__, False),
    ],
)
def test_whose_file_it_is(file: str, users: bool) -> None:  # noqa: FBT001
    assert is_user_file(file) is users


@pytest.mark.parametrize(
    ("record", "users"),
    [
        ("yaml-6.0.dist-info/RECORD", False),
        ("yaml-6.0.dist-info/METADATA", True),  # a built source tree
        ("yaml.egg-info/SOURCES.txt", True),
        ("yaml/RECORD", True),
    ],
)
def test_a_folder_into_which_libraries_were_installed_is_not_the_users(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record: str,
    users: bool,  # noqa: FBT001
) -> None:
    vendored = tmp_path / "vendored"
    install_library_(vendored, record)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(vendored), str(tmp_path / "missing"), "\0", *sys.path])
    for file in (vendored / "six.py", vendored / "yaml" / "nodes" / "tree.py"):
        assert is_user_file(str(file)) is raises_for_program(file, monkeypatch) is users
    for file in (tmp_path / "train.py", tmp_path / "vendored_too" / "game.py", tmp_path / "missing" / "game.py"):
        assert is_user_file(str(file))


def test_a_working_folder_that_was_removed_leaves_the_other_folders_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_library_(tmp_path / "function")
    install_library_(tmp_path / "vendored")
    paths = ["", *(str(tmp_path / name) for name in ("function", "vendored"))]
    monkeypatch.setattr(sys, "path", [*paths, *sys.path])
    monkeypatch.setitem(vars(sys.modules["__main__"]), "__file__", str(tmp_path / "function" / "handler.py"))
    (tmp_path / "removed").mkdir()
    monkeypatch.chdir(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    assert is_user_file(str(tmp_path / "function" / "orders.py"))
    assert not is_user_file(str(tmp_path / "vendored" / "six.py"))


def install_library_(folder: Path, record: str = "yaml-6.0.dist-info/RECORD") -> None:
    """Make a folder with the record that an installer leaves beside a library."""
    (folder / record).parent.mkdir(parents=True)
    (folder / record).touch()


def raises_for_program(file: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether an exception of a module in this file is taken as the program's."""
    module = ModuleType("vendored_module")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return is_program_fault(type("Stop", (Exception,), {"__module__": module.__name__})())


def test_the_programs_own_folder_is_the_users_with_libraries_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("function", "service"):
        install_library_(tmp_path / name)
        monkeypatch.syspath_prepend(str(tmp_path / name))
    monkeypatch.setitem(vars(sys.modules["__main__"]), "__file__", str(tmp_path / "function" / "handler.py"))
    monkeypatch.chdir(tmp_path / "service")
    assert is_user_file(str(tmp_path / "function" / "orders.py"))
    assert is_user_file(str(tmp_path / "service" / "orders.py"))


def test_a_package_can_be_counted_in_but_the_tool_never() -> None:
    assert is_user_file(str(PACKAGE / "runs" / "session.py"), ("flatwater",))
    assert not is_user_file(census.__file__, ("flatwater",))
    assert not is_user_file(str(TOOL / "heap" / "session.py"), ("flatwater",))


def test_roots_are_globals_locals_and_registries(load: Load) -> None:
    program = load("""
        LIST = [1.5]
        def play(look):
            score = 2.5
            return look()
    """)
    roots = program.play(lambda: dict(named_roots(Roots())))
    assert roots["train.LIST"] is program.LIST
    assert roots["play() in train.py: score"] == 2.5
    assert "logging's handlers" in roots
    assert not any(path.startswith(("json.", "torch.", "flatwater.")) for path in roots)


def test_outer_frames_come_before_the_frames_that_they_call(load: Load) -> None:
    program = load("""
        def inner(look, given): return look()
        def main(look):
            kept = object()
            return inner(look, kept)
    """)
    paths = [path for path, _ in program.main(lambda: list(named_roots(Roots())))]
    assert paths.index("main() in train.py: kept") < paths.index("inner() in train.py: given")


COROUTINES = """
    import asyncio

    async def numbers(gate):
        inside = [3.5]
        await gate.wait()
        yield inside

    async def fetch(gate, n):
        pending = [n]
        async for _ in numbers(gate):
            pass

    async def main(look, looked):
        gate, own = asyncio.Event(), [2.5]
        tasks = [asyncio.ensure_future(fetch(gate, n)) for n in range(3)]
        await asyncio.sleep(0)
        looked += look()
        asyncio.get_running_loop().call_soon(lambda: (looked.append(None), looked.extend(look()), gate.set()))
        await asyncio.gather(*tasks)

    def run(look):
        looked = []
        asyncio.run(main(look, looked))
        return looked
"""


def test_what_tasks_are_suspended_with_is_reached(load: Load) -> None:
    """Below a coroutine the generator that it waits for; a coroutine has one path, whether it runs or waits."""
    looked = load(COROUTINES).run(lambda: list(named_roots(Roots())))
    parted = looked.index(None)
    for found in (looked[:parted], looked[parted + 1 :]):
        held = [(path, value) for path, value in found if "() in train.py" in path]
        assert [value for path, value in held if path == "main() in train.py: own"] == [[2.5]]
        assert sorted(value for path, value in held if path == "fetch() in train.py: pending") == [[0], [1], [2]]
        assert [value for path, value in held if path == "numbers() in train.py: inside"] == [[3.5]] * 3


def test_what_a_library_has_and_a_variable_of_the_users_too_is_the_users(load: Load) -> None:
    """A loop keeps the task that runs, and the task all the others."""
    program = load("""
        def play(look):
            kept = [bytes(10_000)]
            return look(kept)
    """)

    def paths(kept: list[bytes]) -> set[str]:
        held = census.take_census(Roots(libraries=(("lib.current", [kept]), ("lib.other", [bytes(20_000)])))).holdings
        return {path for path, holding in held.items() if holding.parent is None and holding.bytes >= 10_000}

    found = program.play(paths)
    assert {"play() in train.py: kept", "lib.other"} <= found
    assert "lib.current" not in found


def test_the_task_that_all_wait_for_is_reached_among_thousands(load: Load) -> None:
    """A set of many tasks has no order, and some of them are looked at."""
    program = load("""
        import asyncio
        async def wait():
            await asyncio.sleep(3600)
        async def main(look):
            own = [2.5]
            tasks = [asyncio.ensure_future(wait()) for _ in range(5000)]
            asyncio.get_running_loop().call_later(0.01, lambda: found.append(look()))
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            return len(own)
        found = []
        def run(look):
            asyncio.run(main(look))
            return found[0]
    """)
    own = program.run(lambda: dict(named_roots(Roots())).get("main() in train.py: own"))
    program.found.clear()
    gc.collect()  # the next test looks at its own tasks
    assert own == [2.5]


def test_a_look_at_tasks_keeps_nothing_alive(load: Load) -> None:
    """What a coroutine worked on is gone when it has ended, though its frame was looked at."""
    program = load("""
        import asyncio, weakref
        class Work: ...
        gone = []
        async def one(gate):
            work = Work()
            gone.append(weakref.ref(work))
            await gate.wait()
        async def main(look):
            gate = asyncio.Event()
            task = asyncio.ensure_future(one(gate))
            await asyncio.sleep(0)
            look()
            gate.set()
            await task
        def run(look):
            asyncio.run(main(look))
            return gone[0]()
    """)
    gc.disable()
    try:
        assert program.run(lambda: [None for _ in named_roots(Roots())]) is None
    finally:
        gc.enable()


def test_a_dict_of_locals_that_the_program_has_is_left_alone(load: Load) -> None:
    """Up to Python 3.12 it is the very dict that the frame keeps."""
    program = load("""
        def play(look):
            score = 2.5
            settings = locals()
            look()
            return settings
    """)
    settings = program.play(lambda: list(named_roots(Roots())))
    assert settings["score"] == 2.5


def test_what_the_program_writes_into_its_locals_stays(load: Load) -> None:
    program = load("""
        def play(look):
            score = 2.5
            settings = locals()
            settings["score"], settings["other"] = 9, 7
            look()
            return settings
    """)
    settings = program.play(lambda: list(named_roots(Roots())))
    assert (settings["score"], settings["other"]) == (9, 7)


def test_globals_of_code_that_runs_in_a_dict_are_roots() -> None:
    """As under a profiler or tracer: the dict is no module's."""
    space = {"__name__": "__main__", "__file__": "/home/me/script.py", "look": lambda: dict(named_roots(Roots()))}
    exec(compile("kept = [1.5]\nroots = look()", "/home/me/script.py", "exec"), space)
    assert space["roots"]["script.kept"] is space["kept"]


def test_reading_locals_leaves_no_reference() -> None:
    thing = [object()]
    before = sys.getrefcount(thing)
    assert frame_locals(sys._getframe())["thing"] is thing
    assert sys.getrefcount(thing) == before


def test_the_file_of_a_script_that_has_ended_is_known() -> None:
    """Python takes `__file__` away then; a finding at the end named "the main program"."""
    script = {"__loader__": SourceFileLoader("__main__", "/home/user/service.py"), "ANSWERS": {}}
    assert source_file(script) == "/home/user/service.py"
    assert source_file({"ANSWERS": {}}) is None


def test_many_threads_of_one_name_are_items_of_a_table() -> None:
    """So that their number is a length: 482 of them were "calls that wait"."""
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, name=f"reporter-{number}", daemon=True) for number in range(20)]
    for thread in threads[: MANY_THREADS - 1]:
        thread.start()
    few = dict(_thread_roots())
    for thread in threads[MANY_THREADS - 1 :]:
        thread.start()
    many = dict(_thread_roots())
    end.set()
    assert ("thread reporter" in few, THREADS_TABLE in few) == (True, False)
    assert ("thread reporter" in many, THREADS_TABLE in many) == (False, True)
