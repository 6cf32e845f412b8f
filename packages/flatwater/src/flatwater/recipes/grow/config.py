"""Settings of a run of `grow`: those of the networks and their policy, and those of all runs."""

from typing import Literal

from flatwater.cluster.work_division import Span, worker_shares
from flatwater.runs.config import WorkersRunConfig, check_workers_run
from flatwater.trainers.grow.config import GrowConfig
from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Number, Workers
from flatwater_watch.options.declare import config


@config
class GrowRunConfig(WorkersRunConfig, GrowConfig):
    """Networks that grow, and a policy that learns when and where they should."""

    trainer: Literal["grow"] = "grow"
    """The recipe, by which `flatwater resume` knows the run."""
    rounds: Number = 60
    """Batches in all, each of one episode of every environment; `flatwater resume RUN --rounds N` goes on to N."""
    workers: Workers = 1
    """Processes that train the networks, each with `threads` threads of its own; auto takes one for each core that is
    free at the start. Any number gives the same run. Each takes whole groups of environments (`group`)."""

    def __post_init__(self) -> None:
        """Check that workers get whole groups of environments, at least one each.

        One worker has all groups; `auto` needs two groups, and a number of workers at least as many groups.
        """
        GrowConfig.__post_init__(self)
        check_workers_run(self)
        groups = len(self.groups)
        half = -(-self.envs // 2)  # rounded up: the largest group size that makes two groups
        group_phrase = (
            f"{self.envs} environments are {groups} group{'s' if groups > 1 else ''} of {self.group}, and a worker "
        )
        if self.workers == "auto":
            expected = (
                f"1, as {group_phrase}takes whole groups. Use --group {half}, which changes "
                "the last bits of the numbers, or more --envs"
            )
            require(groups > 1, "workers", self.workers, expected)
        elif self.workers != 1:
            # A group size with which each of `workers` workers has a group, for the message.
            size = max(1, self.envs // self.workers)
            counts = "1" if groups == 1 else f"1 to {groups}"
            expected = (
                f"{counts}: {group_phrase}takes whole groups. Use --group {size}, which "
                "changes the last bits of the numbers"
            )
            require(self.workers <= groups, "workers", self.workers, expected)

    @property
    def first_measured(self) -> int:
        """First round with an evaluation."""
        return self.evaluation.every


def split_environments(config: GrowConfig, workers: int) -> list[Span]:
    """Return the span of environments of each worker: a share of the groups.

    Groups are not split, as the last bits of a batched product depend on the size of the batch.
    """
    groups = config.groups
    # From the first environment of a worker's first group to the end of its last group.
    return [
        (groups[first_group][0], groups[end_group - 1][1])
        for first_group, end_group in worker_shares(len(groups), workers)
    ]
