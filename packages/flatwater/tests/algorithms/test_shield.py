"""A signal to the whole group of processes, as a terminal sends it, while the compiler is at work."""

import signal
import subprocess
import sys

from flatwater.algorithms.compilation import GROUP_SIGNALS, shield_compiler


def test_ctrl_c_in_a_terminal_reaches_no_compiler() -> None:
    """It ended g++ as well, and the run said that its code could not be compiled."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    program = "import signal; print(*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ())))"
    with shield_compiler():
        started = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    assert {int(number) for number in started.stdout.split()} >= {*GROUP_SIGNALS}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
