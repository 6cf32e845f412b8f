"""The loop's recorder: console, metrics, ledger, checkpoints, alarms, signals and costs of phases of one run."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from signal import Signals
from typing import Any, Protocol

import torch
from rich.text import Text

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.checkpoints.writer import save_checkpoint
from flatwater.memory.ledger import Effort
from flatwater.metrics.alarms import Alarm, above_formula, alarm_lines, group_by_kind, take_new_alarms_, waiting_threads
from flatwater.metrics.console import FIRST, RESIDENT, ConsoleTable
from flatwater.metrics.figures import short_duration
from flatwater.metrics.jsonl import JsonlSink
from flatwater.metrics.sinks import write_all
from flatwater.mirror.opening import MirrorLike
from flatwater.recipe import recipe_of_config
from flatwater.rundir.doubts import write_doubts
from flatwater.rundir.events import RunEvents
from flatwater.rundir.layout import RunFolder
from flatwater.runs.callbacks import NO_CALLBACKS, Callbacks, Round, RoundMetrics
from flatwater.runs.contract import MemoryContract, budget_stop_text, ledger_metrics, ledger_text
from flatwater.runs.fingerprint import arithmetic_hash, run_facts, saved_arithmetics, source_hashes, version_facts
from flatwater.runs.machine import release_freed_memory
from flatwater.runs.profiling import Profiler
from flatwater.runs.recipe_parts import RecipeParts
from flatwater.runs.run import Run
from flatwater.runs.signals import StopRequest
from flatwater.runs.trackers import held_bytes, open_trackers
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.finding_text import finding_lines, headline
from flatwater_watch.events.background import Sink
from flatwater_watch.meters.mappings import footprint, peak_bytes, reset_peak
from flatwater_watch.units import format_duration


class DeviceEvent(Protocol):
    """A moment on a device, with the methods of `torch.cuda.Event`."""

    def elapsed_time(self, end_event: Any) -> float:  # noqa: ANN401  (another of its class)
        """Return the milliseconds from this event to another."""

    def synchronize(self) -> None:
        """Wait until the device has come to this event."""


def cuda_event() -> DeviceEvent:
    """Return an event that is recorded now, behind all that the device was given."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


@dataclass
class PhaseMeter:
    """Counts time and memory between two moments to the phase that was at work; one for each training process.

    Where a CUDA device computes, the clock of this process says how long it took to hand work over. There events mark
    each step's end, and are read when the round is taken.
    """

    mark: Callable[[], DeviceEvent] | None = None
    """Makes an event on the device; None where time is that of this process."""
    marked: list[tuple[str, DeviceEvent]] = field(default_factory=list)
    """Phase and end of each step since `take_`; the first entry is where it began."""
    spent: dict[str, Effort] = field(default_factory=dict)
    """Effort by phase since `take_`."""
    wall: float = field(default_factory=time.monotonic)
    cpu: float = field(default_factory=time.process_time)
    resident: int = field(default_factory=lambda: footprint().resident)
    highest: int = field(default_factory=lambda: peak_bytes() or 0)
    """The most that was ever resident, from before the first phase on; 0 where the system does not count it."""
    counts_peaks: bool = field(default_factory=reset_peak)

    def __post_init__(self) -> None:
        if self.mark is not None:
            self.marked.append(("", self.mark()))

    def count_(self, phase: str, *, ends: bool = True) -> None:
        """Add the time and memory since the last call to the phase, as one of its steps.

        Args:
            phase: name of the phase that was at work.
            ends: whether this was its last step of the round: then its peak is read, and the next phase's begins.
        """
        wall, cpu = time.monotonic(), time.process_time()
        effort_before = self.spent.get(phase, Effort(0.0, 0.0, 0, None))
        self.spent[phase] = Effort(
            seconds=effort_before.seconds + wall - self.wall,
            cpu_seconds=effort_before.cpu_seconds + cpu - self.cpu,
            steps=effort_before.steps + 1,
            peak=effort_before.peak,
        )
        # A peak is read at a phase's end alone: resetting it is a write to /proc.
        if ends:
            self.end_peak_(phase)
        self.wall, self.cpu = wall, cpu
        if self.mark is not None:
            self.marked.append((phase, self.mark()))

    def end_peak_(self, phase: str) -> None:
        """Count the memory since the last peak was read to a phase that ends here."""
        effort, rise = self.spent.get(phase), self._peak_()
        if effort is not None and rise is not None:
            self.spent[phase] = replace(effort, peak=max(rise, effort.peak or 0))

    def take_(self) -> dict[str, Effort]:
        """Return the efforts of phases since the last call, and begin anew."""
        efforts, self.spent = self.spent, {}
        return efforts | {name: replace(efforts[name], seconds=seconds) for name, seconds in self._on_device_().items()}

    def _on_device_(self) -> dict[str, float]:
        """Return the seconds from mark to mark, by the phase that the later one belongs to."""
        seconds: dict[str, float] = {}
        # The only wait for the device in a round, at its end: a wait in each step would leave the device idle.
        if self.marked:
            self.marked[-1][1].synchronize()
        for (_, began), (phase, end) in pairwise(self.marked):
            seconds[phase] = seconds.get(phase, 0.0) + began.elapsed_time(end) / 1000
        self.marked = self.marked[-1:]  # the last end is where the next round begins
        return seconds

    def _peak_(self) -> int | None:
        """Return the bytes by which resident memory rose since the last call; None where peaks are not counted."""
        peak = peak_bytes() if self.counts_peaks else None
        rise = None if peak is None else max(0, peak - self.resident)
        self.resident = footprint().resident
        self.highest = max(self.highest, peak or 0)
        reset_peak()
        return rise


@dataclass(frozen=True)
class SettledRound:
    """What there is to record of a round."""

    number: int
    numbers: dict[str, float]
    logged: dict[str, float]
    """Numbers of the user's own."""
    record: dict[str, Any]
    """Line of the ledger."""
    findings: Sequence[Finding]
    alarms: Sequence[Alarm]


@dataclass
class Recorder:
    """Shows, records and saves a run; one for each process that trains it."""

    composed: Run
    folder: RunFolder
    table: ConsoleTable
    voice: RunEvents
    stop: StopRequest
    mirror: MirrorLike
    contract: MemoryContract
    sinks: Sequence[Sink]
    journal: JsonlSink
    alarms: JsonlSink
    ledger: JsonlSink
    findings: JsonlSink
    callbacks: Callbacks = NO_CALLBACKS
    """The user's functions."""
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    efforts: PhaseMeter = field(default_factory=PhaseMeter)
    """Costs of the current round; saving counts to the next round, as this one's row is on the disk by then."""
    place: Path = field(init=False)
    """Path of the folder when it was last looked up."""
    profiler: Profiler | None = None
    """Records rounds that the user wants recorded."""
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The text of the user's code that the settings name, as it was when the run was composed."""
    machines: set[str] = field(default_factory=set)
    """Arithmetics that the run was computed with, since its beginning."""
    doubts: int = 0
    """Number of the run's doubts that were reported so far."""
    heard: bool = False
    """Whether listeners were told of the signal that ends the run."""
    own_parts: RecipeParts = field(init=False)
    """Parts of the page, where the recipe has any and does not ship with this package."""

    def __post_init__(self) -> None:
        self.place = self.folder.path
        self.own_parts = RecipeParts(recipe_of_config(self.composed.config), self.folder, self.voice.show_line)

    def stepped(self, phase: str, done: int, total: int) -> None:
        """Count the step to its phase and move the bar."""
        self.efforts.count_(phase, ends=done == total)
        self.table.phase(phase, done, total)
        if self.profiler is not None:
            self.profiler.after_step()

    def settled(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Record the round with the numbers that the user logs, then save a checkpoint.

        In this order no round is ever missing from the records: a run that is killed between the two resumes from the
        checkpoint before, cuts the records there and writes them again.
        """
        efforts = self.efforts.take_()
        alarms = [*self.composed.alarms(round_, metrics), *self.waiting_alarms(round_, efforts)]
        times = {f"time/{name}": effort.seconds for name, effort in efforts.items()}
        # Before memory is measured: pages that a phase has freed are no growth.
        release_freed_memory()
        statement, findings = self.contract.settle_round_(round_, efforts | dict(self.composed.parts()))
        record = self.contract.record(statement, efforts, envs=self.composed.live_envs(), peak=self.efforts.highest)
        alarms += above_formula(round_, record["exchange"])
        numbers = (
            dict(self.composed.pace(efforts)) | dict(metrics) | times | ledger_metrics(record) | self.mirror.metrics()
        )
        settled = SettledRound(round_, numbers, dict(self.composed.take_logged_()), record, findings, alarms)
        try:
            if self.callbacks.on_round is not None:
                metrics = RoundMetrics(numbers | settled.logged)
                self.callbacks.on_round(
                    Round(round_, self.composed.config.rounds, metrics, self.stop.ask_, settled.logged)
                )
        finally:  # what it raises must find the round recorded and saved
            self.record_(settled)

    def record_(self, settled: SettledRound) -> None:
        """Write a round down wherever it goes, and save a checkpoint."""
        round_, numbers, record = settled.number, settled.numbers | settled.logged, settled.record
        write_all(self.sinks, round_, numbers)
        self.ledger.write(round_, record)
        self.journal.write(round_, self.composed.record())
        self.table.round(numbers, ledger_text(record), settled.logged)
        self.tell_of_round(round_, numbers)
        self.tell_of_mirror()
        self.report_findings(round_, settled.findings)
        self.tell_of_alarms(round_, settled.alarms)
        self.own_parts.write_when_due_()
        # Its own phase, so that the costs of recording are not counted to the next round's first phase.
        self.efforts.count_("settle")
        self.save()
        if self.profiler is not None:
            self.profiler.after_round_(round_)
        self.efforts.count_("save")

    def waiting_alarms(self, round_: int, efforts: Mapping[str, Effort]) -> list[Alarm]:
        """Return alarms where threads wait for cores; of a process that waits for a device or for workers, none."""
        composed = self.composed
        if composed.device.type != "cpu" or composed.plan.workers:
            return []
        phase_efforts = [efforts[phase.name] for phase in composed.trainer.phases if phase.name in efforts]
        seconds, cpu_seconds = (
            sum(effort.seconds for effort in phase_efforts),
            sum(effort.cpu_seconds for effort in phase_efforts),
        )
        return waiting_threads(round_, composed.config.threads, seconds, cpu_seconds)

    def begin_(self, *, save: bool, recorded: range) -> None:
        """Report doubts, save a checkpoint if `save`, and start torch's profiler if rounds are to be profiled.

        Args:
            save: whether there is no checkpoint yet, so that one of the beginning is written.
            recorded: rounds to profile; an empty range for none.
        """
        self.composed.listen_(self.callbacks.on_episode)
        self.tell_of_doubts()
        if save:
            self.save()
        if recorded:
            trainer = self.composed.trainer
            self.profiler = Profiler(recorded, self.folder.profile, self.composed.device, trainer, self.voice)
            self.profiler.announce_recording()
            self.profiler.begin_(trainer.progress.round + 1)

    def tell_of_round(self, round_: int, numbers: Mapping[str, float]) -> None:
        """Tell listeners the round's numbers in one line; the table has shown them."""
        recipe, rounds, left_seconds = (
            recipe_of_config(self.composed.config),
            self.composed.config.rounds,
            self.table.remaining_seconds(),
        )
        curves = {title.replace(",", ""): numbers[name] for title, name in recipe.curves.items() if name in numbers}
        figures = [f"{title} {value:.4g}" for title, value in curves.items()]
        figures += [
            f"{numbers[RESIDENT.name] / 1e6:.0f} MB",
            format_duration(self.table.round_seconds),
            f"{short_duration(left_seconds)} left",
        ]
        line = f"{recipe.layout.round} {round_}/{rounds}: {', '.join(figures)}"
        self.voice.notify_listeners(
            "round", line, round=round_, rounds=rounds, left_seconds=left_seconds, metrics=dict(numbers)
        )

    def tell_of_alarms(self, round_: int, found: Sequence[Alarm]) -> None:
        """Write alarms down, and show new ones, a line for each kind."""
        if not found:
            return
        self.alarms.write(round_, {"alarms": [f"{a.kind}: {a.message}" for a in found]})
        for alarms in group_by_kind(take_new_alarms_(self.told, found)):
            (line,) = alarm_lines(alarms)
            self.voice.console.print(Text.assemble(("alarm:", "yellow"), " ", line))
            places = [alarm.where for alarm in alarms]
            self.voice.notify_listeners("alarm", line, round=round_, alarm=alarms[0].kind, where=places)

    def report_findings(self, round_: int, findings: Sequence[Finding]) -> None:
        """Write findings about the run's memory down, and show them."""
        for finding in findings:
            self.findings.write(round_, finding.to_json())
            for line in finding_lines(finding):
                self.voice.console.print(line, style="yellow", highlight=False, markup=False)
            self.voice.notify_listeners("finding", f"{headline(finding)}.", round=round_, **finding.to_json())

    def tell_of_doubts(self) -> None:
        """Say why the run cannot be resumed bit for bit, once in each process, and write it down."""
        doubts = self.composed.doubts
        for line in doubts[self.doubts :]:
            self.voice.show_line(f"not exact: {line}", exact=False)
        if len(doubts) > self.doubts:
            write_doubts(self.folder, doubts)
        self.doubts = len(doubts)

    def tell_of_folder(self) -> None:
        """Say where the run goes on, if somebody has renamed its folder, or put another in its place."""
        current_path = self.folder.with_current_name.path
        if current_path != self.place:
            self.place = current_path
            self.voice.show_line(f"the run folder was moved: the run goes on in {current_path}")

    def tell_of_mirror(self) -> None:
        """Show how the mirror stands, and its new messages."""
        for line in self.mirror.take_messages():
            self.voice.show_line(line)
        if line := self.mirror.status_line():
            self.voice.console.print(
                f"{'':>{FIRST}} {line}", style="dim", highlight=False, markup=False, soft_wrap=True
            )

    def explain_stop(self) -> None:
        """Say why the run stops at its budget, and write down what has grown."""
        if self.contract.breach:
            plan, resident = self.contract.plan, self.contract.breach
            self.voice.show_line(
                budget_stop_text(plan, resident), "budget", resident=resident, budget=plan.budget_bytes
            )
            self.report_findings(self.composed.trainer.progress.round, self.contract.monitor.conclude())

    def stopping(self) -> bool:
        """Return whether the run must stop, by a signal or its budget; saves first where a signal asked for it."""
        if self.stop.asks_to_save_():
            # Asked by the loop after each step: handlers only set flags,
            # so nothing is saved while a step is half done.
            # The save's own peak must not count to the phase that it interrupts.
            progress = self.composed.trainer.progress
            self.efforts.end_peak_(self.composed.trainer.phases[progress.phase].name)
            self.save()
            self.efforts.count_("save")
            line = f"SIGUSR2: a checkpoint is saved, in round {progress.round + 1}; the run goes on"
            self.voice.show_line(line, "signal", signal="SIGUSR2", round=progress.round)
        if self.stop.signal and not self.heard:  # the console was told at once
            self.heard, name = True, Signals(self.stop.signal).name
            line = f"{name}: the run stops with a checkpoint"
            self.voice.notify_listeners("signal", line, signal=name, round=self.composed.trainer.progress.round)
        return self.stop.is_wanted or self.contract.over_budget_()

    def save(self) -> None:
        """Write a checkpoint of everything, between rounds or within one."""
        self.tell_of_folder()  # the folder may have been renamed; the descriptor still leads to it
        # Workers first: until they have sent what they know, the state tree is behind the round that is saved.
        self.composed.gather_()
        self.tell_of_doubts()
        trainer, config = self.composed.trainer, self.composed.config
        progress = trainer.progress
        step = sum(phase.steps() for phase in trainer.phases[: progress.phase]) + progress.step
        facts: dict[str, Any] = run_facts(self.composed) | {"versions": version_facts()}
        facts["sources"] = self.sources
        self.machines |= {arithmetic_hash(), *self.composed.machines()}
        if len(self.machines) > 1:
            facts["machines"] = sorted(self.machines)
        manifest_path = save_checkpoint(
            self.folder.checkpoints,
            trainer.run,
            round=progress.round,
            step=step,
            facts=facts,
            config=config.checkpoints,
            spared=self.mirror.protected_manifests(),  # the mirror's thread reads their shards now
        )
        self.mirror.offer(manifest_path)  # after the save: the mirror reads files, never the run's memory
        line = f"checkpoint {manifest_path.stem}{f', within round {progress.round + 1}' if step else ''}"
        self.voice.notify_listeners("saved", line, round=progress.round, step=step, checkpoint=manifest_path.name)

    def close(self) -> None:
        """Close the files, and release what the run computed on."""
        # The profiler first: its last trace is written into the folder, and says so through the console.
        if self.profiler is not None:
            self.profiler.close()
        self.composed.close()
        self.contract.monitor.close()
        for sink in (*self.sinks, self.journal, self.alarms, self.ledger, self.findings):
            sink.close()


def build_watcher(
    composed: Run,
    folder: RunFolder,
    table: ConsoleTable,
    *,
    voice: RunEvents,
    stop: StopRequest,
    mirror: MirrorLike,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Recorder:
    """Open the run's files where its state is; rows that a killed process recorded beyond that are cut off."""
    last_round = composed.trainer.progress.round
    with ExitStack() as open_files:

        def open_(path: Path) -> JsonlSink:  # closed if another one cannot be opened
            sink = JsonlSink(path, resume_at=last_round)
            open_files.callback(sink.close)
            return sink

        metrics = open_(folder.metrics)
        trackers = open_trackers(composed.config, folder, voice.show_line, resume_at=last_round)
        for tracker in trackers:
            open_files.callback(tracker.close)
        watcher = Recorder(
            composed=composed,
            folder=folder,
            table=table,
            voice=voice,
            stop=stop,
            mirror=mirror,
            contract=MemoryContract(
                composed.trainer.run,
                composed.plan,
                composed.device,
                beside=lambda: held_bytes(trackers) | mirror.buffer_bytes(),
                elsewhere=composed.elsewhere,
                exchange=composed.exchange,
            ),
            sinks=(metrics, *trackers),
            journal=open_(folder.journal(recipe_of_config(composed.config).journal)),
            alarms=open_(folder.alarms),
            ledger=open_(folder.ledger),
            findings=open_(folder.findings),
            callbacks=callbacks,
            sources=source_hashes(composed.config),
            machines=saved_arithmetics([manifest.facts for manifest in list_checkpoints(folder.checkpoints)[-1:]]),
            efforts=PhaseMeter(cuda_event if composed.device.type == "cuda" else None),
        )
        open_files.pop_all()  # all are open: from here on `close` closes them
    return watcher
