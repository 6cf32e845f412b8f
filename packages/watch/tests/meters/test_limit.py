"""The limits that a process is told of are those that were set for it."""

import subprocess
import sys

import psutil

from flatwater_watch.meters.limit import memory_limits
from flatwater_watch.meters.process import resident_bytes

GIB = 1 << 30


def test_the_machine_is_always_a_limit() -> None:
    found = memory_limits()["RAM"]
    assert resident_bytes() < found <= psutil.virtual_memory().total + resident_bytes()


def test_a_limit_of_the_shell_counts_from_what_is_used_already() -> None:
    """At `ulimit -v`, what is left of the addresses can still become resident."""
    program = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({4 * GIB}, {4 * GIB}))\n"
        "import psutil; from flatwater_watch.meters.limit import memory_limits\n"
        "found, memory = memory_limits(), psutil.Process().memory_info()\n"
        f"print(found['ulimit -v'] - memory.rss - ({4 * GIB} - memory.vms), 'ulimit -d' in found)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    difference, other = ran.stdout.split()
    assert abs(int(difference)) < 8 << 20
    assert other == "False"
