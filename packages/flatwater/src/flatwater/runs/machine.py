"""The machine that a run computes on: device, threads, and how freed memory is kept or given back."""

import ctypes
import gc
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from flatwater_watch.errors import ConfigError
from flatwater_watch.meters.process import free_cores

_MMAP_MAX, _TRIM_THRESHOLD = -4, -1
"""Numbers of mallopt's parameters (malloc.h)."""


def find_device(name: str) -> torch.device:
    """Return the device of that name, and make CUDA repeat its numbers.

    Raises:
        ConfigError: torch does not know the device, or this machine does not have it.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device = {name!r}: expected cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device = {name!r}: torch finds {torch.cuda.device_count()} CUDA devices on this machine. "
            "Use --device cpu, or install a CUDA build of torch."
        )
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device = {name!r}: expected cpu, cuda or cuda:N")
    if device.type == "cuda":
        repeat_on_cuda()
    return device


def repeat_on_cuda() -> None:
    """Have CUDA compute the same bits each time, in the precision that is asked for; before it computes at all.

    Operations that have no such kernel warn, and go on: a run must not end at one of them.
    """
    # cuBLAS reads it when its handle is made,
    # and PyTorch's notes on determinism ask for it; the user's own value stays.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    # The market's simulator writes by `put_` alone, each index once: no order of a GPU's threads shows in that.
    warnings.filterwarnings("ignore", message="put_ does not have a deterministic implementation")
    # Benchmarks pick a kernel by its time in this process: another process may pick another one.
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # TF32 keeps 10 bits of a mantissa, where float32 was asked for.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def cuda_devices() -> list[str]:
    """The CUDA devices that torch can use, as they call themselves."""
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def use_threads(count: int) -> int:
    """Give torch that many threads; 0 stands for the cores that no other process uses now. Returns the number."""
    threads = count or free_cores()
    torch.set_num_threads(threads)
    return threads


def keep_freed_memory() -> None:
    """Have large freed blocks reused instead of given back to the system at once. Called once, before round 1.

    glibc maps and unmaps every block above 32 MiB each time, and its pages are zeroed at each use: a third of an
    update's CPU time on 669 columns. The memory kept is at most one phase's peak; `release_freed_memory` gives it back.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        # No block by `mmap`, whatever its size: they come from the heap, whose freed blocks are used again.
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)  # the heap's end is not given back by itself either


@contextmanager
def freeze_gc() -> Iterator[None]:
    """Hide all present objects (modules, the run itself) from the garbage collector while a run trains.

    That makes a collection after each round cheap. At the end all is in sight again, also objects that the program
    itself had frozen, as Python does not say which objects these are.
    """
    gc.collect()  # first: garbage that is frozen would stay for the whole run
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def release_freed_memory() -> None:
    """Give freed memory back to the system, so that the run holds all that is resident. Called between rounds.

    Cycles are collected first: left to the collector's own pace they lie between live objects for many rounds, and
    resident memory creeps by their gaps. Then glibc returns free pages, wherever they lie; left alone it returns them
    when the last block happens to be free, and resident memory jumps by a phase's temporaries from round to round.
    """
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
