"""What Linux tells of other processes."""

import os

from flatwater.memory.probes.proc import below, has_children


def test_a_child_is_seen_until_it_is_waited_for() -> None:
    """In a fork, which begins without any: the test's own process may have other children."""
    pid = os.fork()
    if pid == 0:
        seen = [has_children(), bool(below())]
        child = os.fork()
        if child == 0:
            os._exit(7)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        seen += [has_children(), has_children(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7]
        seen.append(has_children())
        os._exit(0 if seen == [False, False, True, True, True, False] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
