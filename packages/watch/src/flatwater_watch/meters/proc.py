"""Figures of processes from `/proc`, read without any library: the watch runs in interpreters that have none."""

from collections import defaultdict

from flatwater_watch.meters.system_calls import list_folder, process_id, read_text, system

KIB = 1024
WAIT_ALL_CHILDREN = 0x40000000
"""wait(2), `__WALL`: children of any kind."""
_STATE, _PARENT, _EXIT_SIGNAL = 0, 1, 35
"""Indexes of fields in `/proc/PID/stat` (proc(5)), counted behind the program's name."""
_SLEEPING, _STOPPED = "S", "T"
"""States of a process that waits, but not for a disk, and of one that a signal has stopped."""
_NO_SIGNAL = "0"
"""The exit signal of a process that sends none."""
_CPU_TICK_FIELDS = slice(11, 15)
"""Indexes of the CPU time in ticks of the system's clock: utime, stime, cutime and cstime."""


def read_kib_counters(path: str) -> dict[str, int]:
    """Return the bytes by name of the lines `Name: 12 kB` of a file such as `/proc/self/status`.

    Other lines are left out; a name that comes several times has the sum.

    Raises:
        OSError: there is no such file, the process has ended, or it belongs to another user.
    """
    counters: dict[str, int] = {}
    for line in read_text(path).splitlines():
        name, _, amount = line.partition(":")
        words = amount.split()
        if words[1:] == ["kB"]:
            counters[name] = counters.get(name, 0) + int(words[0]) * KIB
    return counters


def available_bytes() -> int:
    """Return the bytes that the machine can give without swapping."""
    return read_kib_counters("/proc/meminfo")["MemAvailable"]


def queued_seconds() -> float:
    """Return the seconds that this thread has waited for a core so far; 0 if the system does not say."""
    try:
        _, waited_nanoseconds, *_ = read_text("/proc/thread-self/schedstat").split()
        return int(waited_nanoseconds) / 1e9
    except OSError:  # a kernel without these statistics
        return 0.0


def descendant_pids(pid: int | None = None) -> dict[int, int]:
    """Return the ids of all descendants of a process, by default of this process, each with the id of its branch.

    The branch is the child of that process from which the descendant descends, or which it is itself. Processes whose
    end sends no signal are left out: they are copies that make a query for a watched process (`allocator_clone`).
    """
    children = defaultdict[int, list[int]](list)
    for name in list_folder("/proc"):
        if name.isdecimal():  # the folder of a process
            try:
                fields = _stat_fields(int(name))
            except OSError:  # the process ended meanwhile
                continue
            if fields[_EXIT_SIGNAL] != _NO_SIGNAL:
                children[int(fields[_PARENT])].append(int(name))
    own_children = children[process_id() if pid is None else pid]
    branches = {child: child for child in own_children}
    descendants = list(own_children)
    for descendant in descendants:  # the list grows inside the loop, by the children of each
        descendants += children[descendant]
        branches |= dict.fromkeys(children[descendant], branches[descendant])
    return branches


def has_children() -> bool:
    """Return whether this process has any children; the call takes a microsecond."""
    # WNOWAIT: a child that has ended stays a zombie, and the program can still wait for it.
    try:
        system.waitid(system.P_ALL, 0, system.WEXITED | system.WNOHANG | system.WNOWAIT | WAIT_ALL_CHILDREN)
    except ChildProcessError:
        return False
    return True


def context_switches(pid: int) -> int | None:
    """Return how often the main thread of a process, if it sleeps now, has left its core so far.

    It is None if the thread runs or is gone. While the number stays the same, the thread has not woken up.
    """
    try:
        # Lines such as `State: S (sleeping)`, by what stands before the colon.
        fields = dict(line.split(":", 1) for line in read_text(f"/proc/{pid}/task/{pid}/status").splitlines())
        switch_count = int(fields["voluntary_ctxt_switches"]) + int(fields["nonvoluntary_ctxt_switches"])
    except (OSError, KeyError):  # the process has ended, or the system only emulates Linux
        return None
    return switch_count if fields["State"].split()[0] == _SLEEPING else None


def thread_count() -> int:
    """Return the number of threads of this process, native threads included."""
    return len(list_folder("/proc/self/task"))


def is_waiting(pid: int) -> bool:
    """Return whether the main thread of a process sleeps, and not for a disk; False if it has ended."""
    return _has_state(pid, _SLEEPING)


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process; False if it has ended."""
    return _has_state(pid, _STOPPED)


def _has_state(pid: int, state: str) -> bool:
    """Return whether a process is in a state, a letter of proc(5); False if it has ended."""
    try:
        return _stat_fields(pid)[_STATE] == state
    except OSError:
        return False


def process_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended; 0 if it has ended itself."""
    try:
        ticks = sum(map(int, _stat_fields(pid)[_CPU_TICK_FIELDS]))
    except OSError:
        return 0.0
    return ticks / int(system.sysconf("SC_CLK_TCK"))


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of `/proc/PID/stat` from the state on."""
    # The program's name comes before them, in parentheses, and may have spaces and parentheses itself.
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def parent_pid(pid: int) -> int:
    """Return the id of the parent of a process; 0 if it has none.

    Raises:
        OSError: the process has ended.
    """
    return int(_stat_fields(pid)[_PARENT])


def process_command(pid: int) -> list[str]:
    """Return the words of a process's command line; without one, its name in brackets, as `ps` shows it.

    Raises:
        OSError: the process has ended.
    """
    words = read_text(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")
    # A kernel's thread, or a process that has ended, has no words.
    return words if words != [""] else [f"[{read_text(f'/proc/{pid}/comm').strip()}]"]


def process_owner(pid: int) -> tuple[int, int]:
    """Return the ids of the effective user and group of a process.

    Raises:
        OSError: the process has ended.
    """
    # Not by the owner of `/proc/PID`, which is root for a process that may not be dumped.
    fields = dict(line.split(":", 1) for line in read_text(f"/proc/{pid}/status").splitlines())
    # Each field has four ids: real, effective, saved, and that of the file system.
    return int(fields["Uid"].split()[1]), int(fields["Gid"].split()[1])


def busy_core_ticks() -> dict[int, int]:
    """Return the clock ticks since boot in which each core was busy, by the core's number.

    A core that waits for a disk is not busy.
    """
    busy_ticks = {}
    for line in read_text("/proc/stat").splitlines():
        name, *numbers = line.split()
        if name.startswith("cpu") and name != "cpu":  # `cpu0`, `cpu1`; `cpu` alone is the sum over all cores
            # The kernel counts guests in `user` and `nice` already.
            user, nice, system, _idle, _iowait, irq, softirq, steal, *_guests = map(int, numbers)
            busy_ticks[int(name.removeprefix("cpu"))] = user + nice + system + irq + softirq + steal
    return busy_ticks
