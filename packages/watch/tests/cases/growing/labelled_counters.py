"""A counter with the number of the job among its labels.

Thread: https://github.com/prebid/salesagent/issues/1265
Looks like: memory climbs with the jobs; the program keeps none of them.
Fix: drop the label, or `counter.remove(...)` when the job ends.
"""

import sys
import time

from prometheus_client import Histogram

seconds = Histogram("job_seconds", "Seconds of a job", ["job"])


def main(rounds: int) -> None:
    for batch in range(rounds):
        for n in range(250):
            seconds.labels(f"{batch}-{n}").observe(0.1)  # <- here
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
