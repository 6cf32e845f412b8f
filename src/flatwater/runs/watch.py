"""What the loop reports to: console, metrics, ledger, checkpoints, alarms and signals of one run."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from flatwater.checkpoints.writer import save_checkpoint
from flatwater.memory.diagnose.finding import Finding
from flatwater.metrics.alarms import news_, tell
from flatwater.metrics.console import FIRST, ConsoleTable
from flatwater.metrics.jsonl import JsonlSink
from flatwater.metrics.sinks import Sink, write_all
from flatwater.runs.contract import Contract, farewell, in_words, metrics_of
from flatwater.runs.efforts import Efforts, steps_per_second
from flatwater.runs.facts import facts, versions
from flatwater.runs.folder import RunFolder
from flatwater.runs.machine import release_freed_memory
from flatwater.runs.recipe import find_recipe
from flatwater.runs.run import Run
from flatwater.runs.signals import Stop
from flatwater.runs.trackers import held_bytes, open_trackers
from flatwater.runs.unmirrored import MirrorLike


@dataclass(frozen=True)
class Round:
    """A round that is complete, and saved."""

    number: int
    rounds: int
    """Wanted in all."""
    metrics: Mapping[str, float]
    stop: Callable[[], None]
    """Ends the run here; it can be resumed."""


@dataclass
class RunWatcher:
    """Shows, records and saves a run; one for each process that trains it."""

    composed: Run
    folder: RunFolder
    table: ConsoleTable
    console: Console
    stop: Stop
    mirror: MirrorLike
    contract: Contract
    sinks: Sequence[Sink]
    journal: JsonlSink
    alarms: JsonlSink
    ledger: JsonlSink
    findings: JsonlSink
    on_round: Callable[[Round], object] | None = None
    """Called after each round."""
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    efforts: Efforts = field(default_factory=Efforts)
    """Of the current round. Saving counts to the round after: its own row is on the disk by then."""
    place: Path = field(init=False)
    """Where the folder was when that was last looked at."""

    def __post_init__(self) -> None:
        """Begin where the folder was found."""
        self.place = self.folder.path

    def stepped(self, phase: str, done: int, total: int) -> None:
        """Count the step to its phase and move the bar."""
        self.efforts.count_(phase, ends=done == total)
        self.table.phase(phase, done, total)

    def settled(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Record the round, then save a checkpoint.

        In this order no round is ever missing from the records: a run that is killed between the two resumes from the
        checkpoint before, cuts the records there and writes them again.
        """
        found = self.composed.alarms(round_, metrics)
        efforts = self.efforts.take_()
        times = {f"time/{name}": effort.seconds for name, effort in efforts.items()}
        release_freed_memory()
        statement, grown = self.contract.settle_(round_, efforts | dict(self.composed.parts()))
        record = self.contract.record(statement, efforts, envs=self.composed.live_envs(), peak=self.efforts.highest)
        pace = steps_per_second(efforts, [phase.name for phase in self.composed.trainer.phases])
        numbers = {"train/sps": pace} | dict(metrics) | times | metrics_of(record) | self.mirror.metrics()
        write_all(self.sinks, round_, numbers)
        self.ledger.write(round_, record)
        self.journal.write(round_, self.composed.record())
        self.table.round(numbers, in_words(record))
        self.tell_of_mirror()
        self.tell(round_, grown)
        if found:
            self.alarms.write(round_, {"alarms": [f"{a.kind}: {a.message}" for a in found]})
            for line in tell(news_(self.told, found)):
                self.console.print(Text.assemble(("alarm:", "yellow"), " ", line))
        self.efforts.count_("settle")
        self.save()
        if self.on_round is not None:
            self.on_round(Round(round_, self.composed.config.rounds, numbers, self.stop.ask_))
        self.efforts.count_("save")

    def tell(self, round_: int, findings: Sequence[Finding]) -> None:
        """Write what was found about the run's memory down, and show it."""
        for finding in findings:
            self.findings.write(round_, finding.to_json())
            for line in finding.tell():
                self.console.print(line, style="yellow", highlight=False, markup=False)

    def tell_of_folder(self) -> None:
        """Say where the run goes on, if somebody has renamed its folder, or put another in its place."""
        now = self.folder.named.path
        if now != self.place:
            self.place = now
            line = f"the run folder was moved: the run goes on in {now}"
            self.console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)

    def tell_of_mirror(self) -> None:
        """Show how the mirror stands, and what happened there."""
        for line in self.mirror.news():
            self.console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)
        if line := self.mirror.line():
            self.console.print(f"{'':>{FIRST}} {line}", style="dim", highlight=False, markup=False, soft_wrap=True)

    def explain(self) -> None:
        """Say why the run stops at its budget, and write down what has grown."""
        if self.contract.breach:
            self.console.print(farewell(self.contract.plan, self.contract.breach), style="yellow", highlight=False)
            self.tell(self.composed.trainer.progress.round, self.contract.monitor.conclude())

    def stopping(self) -> bool:
        """Whether a signal asked the run to stop, or its budget is used up; saves where one asked for that."""
        if self.stop.asks_to_save_():
            self.save()
            self.efforts.count_("save")
            at = self.composed.trainer.progress
            self.console.print(
                f"SIGUSR2: a checkpoint is saved, in round {at.round + 1}; the run goes on", style="yellow"
            )
        return self.stop.wanted or self.contract.over_budget_()

    def save(self) -> None:
        """Write a checkpoint of everything, between rounds or within one."""
        self.tell_of_folder()
        self.composed.gather_()
        trainer, config = self.composed.trainer, self.composed.config
        progress = trainer.progress
        done = sum(phase.steps() for phase in trainer.phases[: progress.phase]) + progress.step
        known: dict[str, Any] = facts(self.composed) | {"versions": versions()}
        saved = save_checkpoint(
            self.folder.checkpoints,
            trainer.run,
            round=progress.round,
            step=done,
            facts=known,
            config=config.checkpoints,
            spared=self.mirror.spared(),
        )
        self.mirror.offer(saved)

    def close(self) -> None:
        """Close the files, and let go of what the run computed on."""
        self.composed.close()
        self.contract.monitor.close()
        for sink in (*self.sinks, self.journal, self.alarms, self.ledger, self.findings):
            sink.close()


def build_watcher(
    composed: Run,
    folder: RunFolder,
    table: ConsoleTable,
    *,
    console: Console,
    stop: Stop,
    mirror: MirrorLike,
    on_round: Callable[[Round], object] | None = None,
) -> RunWatcher:
    """Open the run's files where its state is: what a killed process recorded beyond that is cut off."""
    at = composed.trainer.progress.round
    with ExitStack() as opened:

        def open_(path: Path) -> JsonlSink:
            sink = JsonlSink(path, resume_at=at)
            opened.callback(sink.close)
            return sink

        def say(line: str) -> None:
            console.print(line, style="yellow", highlight=False, markup=False)

        metrics = open_(folder.metrics)
        trackers = open_trackers(composed.config, folder, say, resume_at=at)
        for tracker in trackers:
            opened.callback(tracker.close)
        watcher = RunWatcher(
            composed=composed,
            folder=folder,
            table=table,
            console=console,
            stop=stop,
            mirror=mirror,
            contract=Contract(
                composed.trainer.run,
                composed.plan,
                composed.device,
                beside=lambda: held_bytes(trackers) | mirror.held(),
                elsewhere=composed.elsewhere,
            ),
            sinks=(metrics, *trackers),
            journal=open_(folder.journal(find_recipe(composed.config.trainer).journal)),
            alarms=open_(folder.alarms),
            ledger=open_(folder.ledger),
            findings=open_(folder.findings),
            on_round=on_round,
        )
        opened.pop_all()  # all are open: from here on `close` closes them
    return watcher
