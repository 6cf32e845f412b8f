"""A watcher of a noisy training job that waits for one word in its output.

Thread: https://github.com/pexpect/pexpect/issues/388
Looks like: the watcher, not the job, fills the machine after days.
Cause: what was read without a match stays in the buffer of the `spawn`, whatever the window that is searched.
Fix: also expect the end of a line (or `.+`), so that what was read is taken from the buffer.
"""

import sys
import textwrap
import time

import pexpect

JOB = textwrap.dedent(
    """
    import sys, time
    for step in range(10**9):
        for part in range(60):
            sys.stdout.write(f"step {step} part {part} loss {1 / (step + 1):.6f} " + "x" * 200 + "\\n")
        sys.stdout.flush()
        time.sleep(0.004)
    """
)


def main(seconds: float) -> None:
    job = pexpect.spawn(sys.executable, ["-c", JOB], maxread=65536, searchwindowsize=500, encoding="utf-8")
    until = time.monotonic() + seconds
    waits = 0
    while time.monotonic() < until:
        found = job.expect(["CUDA error", pexpect.TIMEOUT], timeout=0.25)  # <- here
        waits += 1
        if found == 0:
            print("the job has failed")
            break
    job.close(force=True)
    print("waits", waits)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 22)
