"""A pipeline that makes the tasks of each hour and runs them in its own process.

Thread: https://github.com/spotify/luigi/issues/2663
Looks like: the driver grows with the number of tasks that it has ever run, by their data.
Cause: luigi's metaclass keeps each task that was ever made, so that equal parameters give the same object.
Fix: `luigi.task_register.Register.clear_instance_cache()` between batches; no data in attributes of tasks.
"""

import logging
import sys
import time

import luigi
import numpy as np
import pandas as pd

DONE = set()


class Hour(luigi.Task):
    """Cleans the measurements of an hour."""

    day = luigi.IntParameter()
    hour = luigi.IntParameter()

    def complete(self) -> bool:
        return (self.day, self.hour) in DONE

    def run(self) -> None:
        values = np.random.default_rng(self.day * 24 + self.hour).normal(size=(2000, 6))
        self.cleaned = pd.DataFrame(values, columns=list("abcdef")).clip(-2, 2)
        DONE.add((self.day, self.hour))


def main(days: int) -> None:
    logging.disable(logging.WARNING)
    for day in range(days):
        hours = [Hour(day=day, hour=hour) for hour in range(24)]
        luigi.build(hours, local_scheduler=True, log_level="ERROR")  # <- here
        time.sleep(0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
