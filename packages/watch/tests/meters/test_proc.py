"""What Linux tells of other processes."""

import os
import signal
import subprocess
import time

from flatwater_watch.meters.proc import context_switches, descendant_pids, has_children


def test_a_child_is_seen_until_it_is_waited_for() -> None:
    """In a fork, which begins without any: the test's own process may have other children."""
    pid = os.fork()
    if pid == 0:
        seen = [has_children(), bool(descendant_pids())]
        child = os.fork()
        if child == 0:
            os._exit(7)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        seen += [has_children(), has_children(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7]
        seen.append(has_children())
        os._exit(0 if seen == [False, False, True, True, True, False] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_main_thread_that_sleeps_is_known_by_its_switches() -> None:
    assert context_switches(os.getpid()) is None, "it is at work"
    sleeper = subprocess.Popen(["sleep", "60"])
    until = time.monotonic() + 240
    while (before := context_switches(sleeper.pid)) is None and time.monotonic() < until:
        time.sleep(0.01)
    assert before is not None
    time.sleep(0.05)
    assert context_switches(sleeper.pid) == before
    sleeper.send_signal(signal.SIGSTOP)
    sleeper.send_signal(signal.SIGCONT)  # it wakes up, and sleeps on
    while context_switches(sleeper.pid) in {None, before} and time.monotonic() < until:
        time.sleep(0.01)
    after = context_switches(sleeper.pid)
    assert after is not None
    assert after > before
    sleeper.kill()
    sleeper.wait()
    assert context_switches(sleeper.pid) is None
