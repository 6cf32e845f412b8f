"""A program whose classes lie in every way runs under the watch as without it, and what grows in it is found.

Each lie is counted in a file that all forks of the program map: the same counts mean that nothing of the program was
called to look at it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
MAIN = "import sys; from flatwater_watch.faces.main import main; sys.exit(main())"
LYING = '''
import abc, array, collections, dataclasses, enum, functools, io, mmap, queue, random, signal, sys, threading
import time, types, weakref

with open("counted", "w+b") as file:  # forks write there as well, and so does the end of the watch
    file.truncate(1 << 16)
    COUNTED = mmap.mmap(file.fileno(), 0)
NAMES = []

def lie(name, answer=None):
    """A method that is counted, and lies: it returns, or raises, what has nothing to do with the object."""
    at = len(NAMES)
    NAMES.append(name)
    def method(*given, **named):
        COUNTED[at] = min(COUNTED[at] + 1, 255)
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer
    return method

def lies(owner, *names, answer=OSError("no")):
    return {name: lie(f"{owner}.{name}", answer) for name in names}

LOOKED_AT = "__len__ __iter__ __getitem__ __contains__ __reversed__ __sizeof__ __eq__ __repr__ __str__ __bool__".split()
LOOKED_AT += "__length_hint__ __reduce_ex__ __reduce__ __dir__ __format__ __copy__ __deepcopy__ __getstate__".split()

def container(base, *more):
    return type(f"Lying{base.__name__}", (base,), lies(base.__name__, *LOOKED_AT, *more))

class LyingList(list):
    __len__ = lie("kept.__len__", 0)
    __iter__ = lie("kept.__iter__", lambda: iter(()))
    __getitem__ = lie("kept.__getitem__", IndexError("empty"))
    __sizeof__ = lie("kept.__sizeof__", -1)
    __repr__ = lie("kept.__repr__", "[]")

class Slow(set):
    __iter__ = lie("slow.__iter__", lambda: time.sleep(3))

class Endless(list):
    __iter__ = lie("endless.__iter__", lambda: iter(int, 1))

class OtherClass:
    __class__ = property(lie("other.__class__", lambda: dict))

class Guarded:
    __getattribute__ = lie("guarded.__getattribute__")

class Deep:
    __getattr__ = lie("deep.__getattr__", RecursionError("deep"))

class Meta(type):
    __getattribute__ = lie("meta.__getattribute__")
    __instancecheck__ = lie("meta.__instancecheck__", True)
    __subclasscheck__ = lie("meta.__subclasscheck__", True)
    __eq__ = lie("meta.__eq__", True)
    __hash__ = lie("meta.__hash__", 1)
    __repr__ = lie("meta.__repr__", OSError("no"))
    __dir__ = lie("meta.__dir__", OSError("no"))

class OfMeta(metaclass=Meta):
    pass

class NamedMeta(type):
    __name__ = property(lie("named.__name__", OSError("no")))
    __module__ = property(lie("named.__module__", OSError("no")))
    __mro__ = property(lie("named.__mro__", ()))
    __dict__ = property(lie("named.__dict__", {}))

class Nameless(metaclass=NamedMeta):
    pass

class Numbered:
    __module__ = 5

class NotAQueue:
    __slots__ = ("mutex",)

NotAQueue.__module__, NotAQueue.__name__ = "queue", "Queue"

class NotAnArray:
    nbytes = property(lie("array.nbytes", OSError("no")))
    shape = property(lie("array.shape", OSError("no")))
    __array__ = lie("array.__array__", OSError("no"))
    __array_interface__ = property(lie("array.__array_interface__", OSError("no")))

NotAnArray.__module__, NotAnArray.__name__ = "numpy", "ndarray"

class NotATensor:
    __torch_function__ = classmethod(lie("tensor.__torch_function__", OSError("no")))
    untyped_storage = lie("tensor.untyped_storage", OSError("no"))
    grad_fn = property(lie("tensor.grad_fn", OSError("no")))

NotATensor.__module__, NotATensor.__name__ = "torch", "Tensor"

class Hidden:
    __dict__ = property(lie("hidden.__dict__", OSError("no")))

class HiddenSlot:
    __slots__ = ("x",)

HiddenSlot.x = property(lie("slot.x", OSError("no")))

class Unequal:
    __hash__ = lie("unequal.__hash__", OSError("no"))
    __eq__ = lie("unequal.__eq__", OSError("no"))
    __bool__ = lie("unequal.__bool__", OSError("no"))

class Speechless:
    __repr__ = lie("speechless.__repr__", OSError("no"))
    __str__ = lie("speechless.__str__", OSError("no"))
    __format__ = lie("speechless.__format__", OSError("no"))

class Undead:
    __del__ = lie("undead.__del__")

class Computed:
    value = property(lie("computed.value", OSError("no")))
    lazy = functools.cached_property(lie("computed.lazy", OSError("no")))

class Descriptor:
    __get__ = lie("descriptor.__get__", OSError("no"))
    __set__ = lie("descriptor.__set__")

class Described:
    held = Descriptor()

class LyingRef(weakref.ref):
    __slots__ = ("more",)
    __call__ = lie("ref.__call__", None)

class WeakValues(weakref.WeakValueDictionary):
    __len__ = lie("values.__len__", 0)
    __iter__ = lie("values.__iter__", OSError("no"))
    values = items = keys = lie("values.items", OSError("no"))

class WeakKeys(weakref.WeakKeyDictionary):
    __len__ = lie("keys.__len__", 0)
    __iter__ = lie("keys.__iter__", OSError("no"))
    keys = items = lie("keys.items", OSError("no"))

class Weak(weakref.WeakSet):
    __len__ = lie("weak.__len__", 0)
    __iter__ = lie("weak.__iter__", OSError("no"))

@dataclasses.dataclass
class Record:
    field: list = dataclasses.field(default_factory=list)
    __eq__ = lie("record.__eq__", OSError("no"))
    __repr__ = lie("record.__repr__", OSError("no"))

@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    field: tuple = ()
    __hash__ = lie("frozen.__hash__", OSError("no"))
    __eq__ = lie("frozen.__eq__", OSError("no"))
    __repr__ = lie("frozen.__repr__", OSError("no"))

class Slots:
    __slots__ = ("a", "b", "__weakref__")
    __getattr__ = lie("slots.__getattr__", OSError("no"))

class Proxy:
    """Stands before another object, as those of wrapt, Django and Werkzeug do."""
    def __init__(self, before):
        object.__setattr__(self, "_before", before)
    __class__ = property(lie("proxy.__class__", lambda: list))
    __getattr__ = lie("proxy.__getattr__", OSError("not bound"))
    __len__ = lie("proxy.__len__", OSError("not bound"))
    __iter__ = lie("proxy.__iter__", OSError("not bound"))
    __instancecheck__ = lie("proxy.__instancecheck__", OSError("not bound"))

class Lazy(types.ModuleType):
    __getattr__ = lie("lazy.__getattr__", OSError("not loaded"))
    __getattribute__ = lie("lazy.__getattribute__", OSError("not loaded"))

class Raised(Exception):
    args = property(lie("raised.args", OSError("no")))
    __traceback__ = property(lie("raised.__traceback__", OSError("no")))

class Abstract(abc.ABC):
    __subclasshook__ = classmethod(lie("abstract.__subclasshook__", True))

class Held(queue.Queue):
    qsize = lie("held.qsize", OSError("no"))
    queue = property(lie("held.queue", OSError("no")), lie("held.set"))
    _init = lie("held._init")

class Local(threading.local):
    __getattribute__ = lie("local.__getattribute__", OSError("no"))

class Buffer:
    __buffer__ = lie("buffer.__buffer__", OSError("no"))
    __release_buffer__ = lie("buffer.__release_buffer__", OSError("no"))

class Choice(enum.Enum):
    ONE = 1
    _missing_ = lie("choice._missing_", OSError("no"))

class Huge:
    __sizeof__ = lie("huge.__sizeof__", 1 << 62)

TARGET = Slots()
CONTAINERS = [container(base) for base in (list, tuple, set, frozenset, str, bytes, bytearray, int, float)]
CONTAINERS += [container(base) for base in (collections.deque, collections.Counter, collections.UserList)]
CONTAINERS += [container(base, "keys", "values", "items") for base in (dict, collections.OrderedDict)]
FILLED = [container(array.array), container(collections.defaultdict, "__missing__"), container(functools.partial)]
BUILT = [
    Slow, Endless, OtherClass, Guarded, Deep, OfMeta, Nameless, Numbered, NotAQueue, NotAnArray, NotATensor, Hidden,
    HiddenSlot, Unequal, Speechless, Computed, Described, WeakValues, WeakKeys, Weak, Record, Frozen, Slots, Raised,
    Held, Local, Buffer, Huge, Undead, io.StringIO, random.Random,
]
def one_of_each():
    yield from (kind() for kind in CONTAINERS + BUILT)
    yield from (FILLED[0]("d", [1.0] * 500), FILLED[1](list), FILLED[2](print))
    yield from (LyingRef(TARGET), weakref.proxy(TARGET), Proxy([1.5]), Lazy("lazy"), Choice.ONE)
    yield types.MappingProxyType(CONTAINERS[-1]())

OTHER, GUARDED, PROXY, OF_META = OtherClass(), Guarded(), Proxy([1.5]), OfMeta()
sys.modules["lazy"] = Lazy("lazy")

class Handler:
    __call__ = lie("handler.__call__")
    __class__ = property(lie("handler.__class__", lambda: list))

class Mapped(collections.UserDict):
    __subclasshook__ = classmethod(lie("mapped.__subclasshook__", OSError("no")))

signal.signal(signal.SIGUSR1, Handler())
LIARS = []
BY_NAME = {}
KEPT = LyingList()

def main():
    for n in range(60):
        LIARS[:] = one_of_each()
        BY_NAME.update((f"liar {at}", liar) for at, liar in enumerate(LIARS))
        list.append(KEPT, bytearray(1 << 20))
        time.sleep(0.05)
    print(len(LIARS), "liars")
    for at, name in enumerate(NAMES):
        if COUNTED[at]:
            print(name, COUNTED[at])
    sys.stderr.write("the program's own\\n")
    sys.stdout.flush()
    sys.exit(3)

main()
'''


def ran(folder: Path, *before: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, *before, sys.executable, "train.py"] if before else [sys.executable, "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, env=environment, timeout=240)


@pytest.mark.slow
def test_a_program_of_fifty_liars_runs_as_without_the_watch_and_its_leak_is_found(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LYING)
    alone = ran(tmp_path)
    assert (alone.returncode, alone.stderr) == (3, "the program's own\n")
    assert int(alone.stdout.split()[0]) >= 50
    assert "held._init 60" in alone.stdout, "what the program calls itself is counted"
    counted = (tmp_path / "counted").read_bytes()
    watched = ran(tmp_path, "-c", MAIN, "run", "--json", "out.json", "--")
    assert (watched.returncode, watched.stdout) == (3, alone.stdout)
    assert (tmp_path / "counted").read_bytes() == counted
    assert watched.stderr.startswith("the program's own\n")
    found = json.loads((tmp_path / "out.json").read_text())
    assert [finding["owner"] for finding in found["findings"]] == ["train.KEPT"]
    assert "the watch failed" not in watched.stderr
