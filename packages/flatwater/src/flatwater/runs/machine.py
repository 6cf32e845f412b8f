"""Settings of the process that a run computes in: device, threads, garbage collector, and the allocator's memory."""

import ctypes
import gc
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from flatwater_watch.errors import ConfigError
from flatwater_watch.meters.process import free_cores

_MMAP_MAX, _TRIM_THRESHOLD = -4, -1
"""Numbers of two parameters of glibc's `mallopt` (malloc.h)."""


def find_device(name: str) -> torch.device:
    """Return the torch device of a name; for CUDA, make its computations repeatable.

    Raises:
        ConfigError: torch does not know the device, or this machine does not have it.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device = {name!r}: expected cpu, cuda or cuda:N") from error
    # Without a number, `cuda` is device 0.
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device = {name!r}: torch finds {torch.cuda.device_count()} CUDA devices on this machine. "
            "Use --device cpu, or install a CUDA build of torch."
        )
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device = {name!r}: expected cpu, cuda or cuda:N")
    if device.type == "cuda":
        make_cuda_repeatable()
    return device


def make_cuda_repeatable() -> None:
    """Make CUDA compute the same bits each time, in full float32. Call it before CUDA computes anything.

    An operation without a deterministic kernel only warns, so that it does not end a run.
    """
    # PyTorch's notes on determinism ask for this variable, which cuBLAS reads at its start; the user's own value stays.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    # The market's simulator uses `put_` with each index once, so the order of a GPU's threads does not matter.
    warnings.filterwarnings("ignore", message="put_ does not have a deterministic implementation")
    # Benchmarks would pick a kernel by its time in this process, and another process may pick another kernel.
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # TF32 would keep 10 of the 23 bits of a float32's mantissa.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def cuda_devices() -> list[str]:
    """Return the names of the CUDA devices that torch can use, such as `NVIDIA H100`."""
    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def use_threads(count: int) -> int:
    """Set and return torch's number of threads; a `count` of 0 takes as many as cores are free now."""
    threads = count or free_cores()
    torch.set_num_threads(threads)
    return threads


@contextmanager
def usual_torch_modes() -> Iterator[None]:
    """Compute with torch's own defaults within the block: float32, on the CPU, with gradients.

    After it the program has its modes and its number of threads again, which a run sets for the whole process.
    """
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    # Within the program's device, be it a default or a block `with torch.device(...)`. Every call of torch pays for it.
    on_cpu = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
    try:
        torch.set_default_dtype(torch.float32)
        with on_cpu, torch.inference_mode(mode=False), torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)


def keep_freed_memory() -> None:
    """Make the allocator keep large freed blocks, instead of giving them back at once. Called once, before round 1.

    glibc maps and unmaps each block above 32 MiB, and the system zeroes its pages at each use: a third of the CPU time
    of an update on 669 columns. At most one phase's peak is kept; `release_freed_memory` gives it back.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        # No block is allocated by `mmap`: all come from the heap, whose freed blocks are used again.
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)  # the free end of the heap is never given back automatically


def release_freed_memory() -> None:
    """Give freed memory back to the system, so that resident memory is what the run holds. Called between rounds.

    Cyclic garbage is collected first: left to the collector, it lies between live objects for many rounds, and its gaps
    make resident memory creep. Then glibc gives back all free pages. Left alone, it does so only when the heap's last
    block is free, and resident memory jumps from round to round.
    """
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
