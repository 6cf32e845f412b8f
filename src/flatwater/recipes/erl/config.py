"""The configuration of a run of evolving traders: what is trained, on which data, and what all runs are given."""

from typing import Annotated, ClassVar, Literal

from flatwater.config.bounds import Bounds, Number, Workers
from flatwater.config.declare import config, refuse_given
from flatwater.errors import require
from flatwater.runs.config import RunConfig, check_run
from flatwater.trainers.erl.config import ErlConfig, replay_capacity


@config
class ErlRunConfig(RunConfig, ErlConfig):
    """A population of traders, evolved on a panel."""

    open_ended: ClassVar = RunConfig.open_ended | {"workers", "cluster", "any_machine", "from_run", "benchmark"}

    trainer: Literal["erl"] = "erl"
    """The recipe, by which `flatwater resume` knows the run."""
    rounds: Number = 6
    """Generations in all; `flatwater resume RUN --rounds N` goes on to N."""
    threads: Annotated[int, Bounds(0, 1024)] = 1
    """Torch threads of each process. More than one help where members are much work and nothing else runs: beside other
    work threads wait for each other, and workers do not. 0 takes the cores that are free at the start; the number is
    kept for resuming, because sums in another order differ in their last bit."""
    workers: Workers = 1
    """Processes that compute, each with `threads` threads of its own; auto takes one for each core that is free at the
    start. Any number gives the same run. More processes than tiles of members have nothing to do."""
    cluster: str | None = None
    """Ray cluster whose machines the workers compute on: auto for the one that this machine belongs to, or its address.
    Needs the extra `ray`. Left out: this machine."""
    any_machine: bool = False
    """Take workers on processors whose arithmetic is another than here. The run is then not the same, bit for bit, as
    in one process, and its checkpoints and report name the arithmetics that it was computed with."""
    panel: str | None = None
    """A stored panel, a Parquet, CSV or Excel file, or `synthetic:60x1500`. Left out: the panel that comes with
    Flatwater."""

    from_run: str | None = None
    """Folder of a run of traders whose champion and members this one begins with: the same networks and instruments, on
    a panel that may have newer days. Their learning goes on with fresh optimizers. Left out: random weights."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_run(self)
        features = self.observation_features
        require(
            len(features) == len(set(features)) > 0, "observation_features", features, "one or more names, each once"
        )
        if self.workers != 1:
            with_workers = f"with workers = {self.workers}, which compute on the CPU. Use --workers 1"
            require(self.device == "cpu", "device", self.device, f"cpu {with_workers}")
        alone = "left out with one worker. Give --workers, or --cluster '' at a resume"
        require(not self.cluster or self.workers != 1, "cluster", self.cluster, alone)
        own, chosen = self.learner.own, f"learner.algorithm = '{self.learner.algorithm}'"
        if not own.noisy:
            refuse_given(self.exploration, "exploration", f"with {chosen}, which adds no noise. Choose 'ddpg' or 'td3'")
        if not own.replays:
            refuse_given(self.replay, "replay", f"with {chosen}, which replays nothing. Choose 'ddpg' or 'td3'")
            require(
                not self.env.account_observation,
                "env.account_observation",
                self.env.account_observation,
                f"false with {chosen}, which learns from what every purchase came to, whatever "
                "was held. Choose 'ddpg' or 'td3' for traders that see their account",
            )
            return
        capacity = replay_capacity(self)
        held = f"1 to {capacity}, the transitions of replay.generations = {self.replay.generations}"
        require(self.replay.warmup <= capacity, "replay.warmup", self.replay.warmup, held)
