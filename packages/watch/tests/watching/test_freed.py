"""Who holds an object that should be gone: the chain for every way to hold one."""

import ctypes
import gc
import json.decoder
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from flatwater_watch.errors import ConfigError
from flatwater_watch.faces.freed_objects import describe_survivors, expect_freed, gather_expectations
from flatwater_watch.faces.holders import find_holder_chain


class Env:
    """What should be gone."""


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Any]:
    """A module of the user's."""
    module = ModuleType("train")
    module.__file__ = str(tmp_path / "train.py")
    sys.modules["train"] = module
    yield module
    del sys.modules["train"]


def in_list(env: Any) -> Any:
    return [0, 1, env]


def in_dict(env: Any) -> Any:
    return {"other": 0, "best env": env}


def in_attribute(env: Any) -> Any:
    holder = Env()
    holder.__dict__["env"] = env
    return holder


def in_closure(env: Any) -> Any:
    def step() -> Any:
        return env

    return step


def in_partial(env: Any) -> Any:
    return partial(print, env)


def in_generator(env: Any) -> Any:
    def play() -> Iterator[None]:
        kept = env
        yield
        del kept

    started = play()
    next(started)
    return started


def in_exception(env: Any) -> Any:
    try:
        env.act()
    except AttributeError as error:
        error.obj = None
        return error


@pytest.mark.parametrize(
    ("hold", "words"),
    [
        (in_list, ["global KEPT: list of 3", "[2]: Env"]),
        (in_dict, ["global KEPT: dict of 2", "['best env']: Env"]),
        (in_attribute, ["global KEPT: Env", ".env: Env"]),
        (in_closure, ["global KEPT: function", "env, in the closure of step: Env"]),
        (in_partial, ["global KEPT: partial", "argument of print: Env"]),
        (in_generator, ["global KEPT: generator", "kept, in the locals of play: Env"]),
        (in_exception, ["global KEPT: AttributeError", "env, in the locals of in_exception: Env"]),
    ],
)
def test_the_chain_from_a_global(user: Any, hold: Callable[[Any], Any], words: list[str]) -> None:
    env = Env()
    user.KEPT = hold(env)
    # This frame and the fixture's hold the object and the module too, but the chain begins at the program's globals.
    kept, alive = user.KEPT, id(env)
    del env
    found = find_holder_chain(next(obj for obj in gc.get_objects() if id(obj) == alive))
    assert kept is user.KEPT
    assert [found[0].partition(", ")[2], found[-1]] == words


def test_a_tensor_that_only_a_graph_needs(user: Any) -> None:
    with gather_expectations() as expected:
        data = torch.ones(3)
        expect_freed(data)
        user.KEPT = (torch.ones(3, requires_grad=True) * data).sum()
        del data
    (text,) = describe_survivors(expected)
    assert re.match(r"Tensor is still alive .*; test_freed\.py:\d", text)
    assert "train.py, global KEPT: Tensor" in text
    assert "what backward needs" in text


def test_an_array_in_dicts_that_the_collector_does_not_track(user: Any) -> None:
    with gather_expectations() as expected:
        array = np.ones(3)
        user.BEST = {"run": {"weights": array}}
        expect_freed(array)
        del array
    assert not gc.is_tracked(user.BEST["run"]["weights"])
    assert "['weights']: ndarray" in describe_survivors(expected)[0]


def test_a_library_holds_it() -> None:
    with gather_expectations() as expected:
        env = Env()
        expect_freed(env)
        json.decoder.env = env  # type: ignore[attr-defined]
        del env
    try:
        assert "held by decoder.py, global env: Env" in describe_survivors(expected)[0]
    finally:
        del json.decoder.env  # type: ignore[attr-defined]


def test_a_running_thread_holds_it() -> None:
    end, began = threading.Event(), threading.Event()

    def play(env: Any) -> None:
        began.set()
        end.wait()
        del env

    with gather_expectations() as expected:
        env = Env()
        expect_freed(env)
        player = threading.Thread(target=play, args=(env,))
        player.start()
        del env
        began.wait()
    (text,) = describe_survivors(expected)
    end.set()
    player.join()
    assert "env" in text
    assert "play" in text
    assert describe_survivors(expected) == []


def test_named_objects_are_told_by_their_name() -> None:
    env = Env()
    history = [env]
    del env
    fixture = ("fixture history", history)
    del history
    chain = find_holder_chain(fixture[1][0], [fixture])
    assert chain == ("fixture history: list of 1", "[0]: Env")


@pytest.mark.slow
def test_native_code_holds_it() -> None:
    with gather_expectations() as expected:
        env = Env()
        expect_freed(env)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(env))
        del env
    assert "held by native code" in describe_survivors(expected)[0]
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(expected[0].reference()))
    assert describe_survivors(expected) == []


def test_what_is_gone_is_not_told_and_cycles_are_collected() -> None:
    with gather_expectations() as expected:
        env, other = Env(), Env()
        env.__dict__["itself"] = env
        expect_freed(env)
        expect_freed(other)
        del env, other
    assert expected[0].reference() is not None
    assert expected[1].reference() is None
    assert describe_survivors(expected) == []


def test_no_attribute_of_the_program_is_called(user: Any) -> None:
    class Lazy:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = None  # type: ignore[assignment]

        def __repr__(self) -> str:
            raise AssertionError

    user.KEPT = [Lazy(), {1: Lazy()}, Lazy(), Env()]
    chain = find_holder_chain(
        user.KEPT[3]
    )  # not inside the assert, which keeps what it compares in variables of its own
    assert chain == ("train.py, global KEPT: list of 4", "[3]: Env")


def test_what_cannot_be_watched_is_said() -> None:
    with gather_expectations(), pytest.raises(ConfigError, match="expect_freed: a dict "):
        expect_freed({})


def test_outside_of_a_test() -> None:
    program = [sys.executable, "-c", "import flatwater_watch; flatwater_watch.expect_freed(print)"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert "ConfigError: expect_freed(builtin_function_or_method): no test" in done.stderr
