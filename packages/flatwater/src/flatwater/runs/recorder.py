"""The loop's recorder: console, metrics, ledger, checkpoints, alarms, signals and costs of phases of one run."""

import gc
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from signal import Signals
from typing import Any

from rich.text import Text

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.checkpoints.writer import save_checkpoint
from flatwater.memory.ledger import Effort
from flatwater.metrics.alarms import Alarm, alarm_lines, group_by_kind, lost_workers, take_new_alarms_, waiting_threads
from flatwater.metrics.console import ConsoleTable, RoundTime
from flatwater.metrics.figures import short_duration
from flatwater.metrics.jsonl import JsonlSink
from flatwater.metrics.sinks import write_all
from flatwater.metrics.table_layout import RESIDENT_COLUMN, ROUND_WIDTH
from flatwater.mirror.opening import MirrorLike
from flatwater.recipe import Recipe, recipe_of_config
from flatwater.rundir.doubts import write_doubts
from flatwater.rundir.events import RunEvents
from flatwater.rundir.layout import RunFolder
from flatwater.runs.callbacks import NO_CALLBACKS, Callbacks, Round, RoundMetrics
from flatwater.runs.contract import MemoryContract, budget_stop_text, ledger_metrics, ledger_text
from flatwater.runs.fingerprint import arithmetic_hash, run_facts, saved_arithmetics, source_hashes, version_facts
from flatwater.runs.machine import release_freed_memory
from flatwater.runs.phase_meter import PhaseMeter, added_efforts, cuda_event
from flatwater.runs.profiling import Profiler
from flatwater.runs.recipe_parts import RecipeParts
from flatwater.runs.run import Run
from flatwater.runs.signals import StopRequest
from flatwater.runs.trackers import held_bytes, open_trackers
from flatwater.runs.upkeep import Upkeep
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.finding_text import finding_lines, headline
from flatwater_watch.events.background import Sink
from flatwater_watch.units import format_duration

CHECK_SECONDS = 0.05
"""Seconds between two looks at the memory in use: a look costs as much as a part of a small step."""
GATHER_SECONDS = 0.5
"""Seconds for which rounds gather before they are written: a short round alone takes three times as long to write."""
LATEST_SECONDS = 1.0
"""Seconds after which they are written between two steps, where a longer round follows."""
MAXIMUM_WAITING = 16
"""Rounds that gather at most: more are written no faster, and would weigh on memory and on the trackers' queues."""


@dataclass(frozen=True)
class SettledRound:
    """Values of a round that are recorded."""

    number: int
    numbers: dict[str, float]
    logged: dict[str, float]
    """Numbers of the user's own."""
    alarms: Sequence[Alarm]
    journal: Mapping[str, Any]
    """Line of the recipe's own file."""
    duration: RoundTime
    ended: datetime = field(default_factory=lambda: datetime.now(UTC))


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
    metrics: JsonlSink
    trackers: Sequence[Sink]
    journal: JsonlSink
    alarms: JsonlSink
    ledger: JsonlSink
    findings: JsonlSink
    callbacks: Callbacks = NO_CALLBACKS
    """The user's functions."""
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    efforts: PhaseMeter = field(default_factory=PhaseMeter)
    """Costs of the current round; saving counts to the next round, as this round's row is on the disk by then."""
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
    looked: float = 0.0
    """Time of the last look at the memory in use."""
    waiting: list[SettledRound] = field(default_factory=list)
    """Rounds that are not written yet."""
    written: float = 0.0
    """Time when rounds were last written."""
    memory: dict[str, float] = field(default_factory=dict)
    """Metrics of the memory, when it was last measured."""
    memory_text: str = ""
    """The terminal's line about the memory."""
    unmeasured: dict[str, Effort] = field(default_factory=dict)
    """Efforts of the rounds since then, by phase."""
    unmeasured_parts: dict[str, Effort] = field(default_factory=dict)
    """Efforts of the parts of a step, since then."""
    measuring: Upkeep = field(init=False)
    """When memory is measured."""
    measures: bool = True
    """Whether memory is measured after this round."""
    saving: Upkeep = field(init=False)
    """When a checkpoint is saved."""
    recipe: Recipe = field(init=False)
    """Recipe of the run."""
    own_parts: RecipeParts = field(init=False)
    """Parts of the page, where the recipe has any and does not ship with this package."""

    def __post_init__(self) -> None:
        self.place, config = self.folder.path, self.composed.config
        self.measuring = Upkeep(config.rounds, config.ledger_every)
        self.contract.paced = not config.ledger_every
        self.saving = Upkeep(config.rounds, config.checkpoints.every, config.checkpoints.keep_every)
        self.recipe = recipe_of_config(config)
        self.own_parts = RecipeParts(self.recipe, self.folder, self.voice.show_line)
        self.voice.prepare = self.write_waiting_

    def stepped(self, phase: str, done: int, total: int) -> None:
        """Count the step to its phase and move the bar."""
        self.efforts.count_(phase, ends=done == total)
        self.table.phase(phase, done, total)
        if self.profiler is not None:
            self.profiler.after_step()

    def settled(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Record the round with the numbers that the user logs; measure memory and save a checkpoint where that is due.

        In this order no round is ever missing from the records: a run that is killed resumes from its last checkpoint,
        cuts the records there and writes them again.
        """
        efforts = self.efforts.take_()
        alarms = [*self.composed.alarms(round_, metrics), *self.waiting_alarms(round_, efforts)]
        times = {f"time/{name}": effort.seconds for name, effort in efforts.items()}
        numbers = dict(self.composed.pace(efforts)) | dict(metrics) | times | self.mirror.metrics()
        self.unmeasured = added_efforts(self.unmeasured, efforts)
        self.unmeasured_parts = added_efforts(self.unmeasured_parts, self.composed.parts())
        if self.measures:
            with self.measuring.measure_cost():
                alarms += self.measure_(round_)
            numbers |= self.memory
        logged, journal = dict(self.composed.take_logged_()), self.composed.record()
        ends = True  # what `on_round` raises ends the run
        try:
            if self.callbacks.on_round is not None:
                metrics = RoundMetrics(numbers | logged)
                self.callbacks.on_round(Round(round_, self.composed.config.rounds, metrics, self.stop.ask_, logged))
            ends = False
        finally:  # what it raises must find the round recorded and saved
            duration = self.table.end_round()
            self.record_(SettledRound(round_, numbers, logged, alarms, journal, duration), ends=ends)

    def record_(self, settled: SettledRound, *, ends: bool) -> None:
        """Write a round down, now or with later ones, and save a checkpoint where that is due or the run ends."""
        self.waiting.append(settled)
        self.measures = self.measuring.is_due_(settled.number + 1)
        # Before memory is measured nothing may wait: it would weigh, here or in a tracker's queue.
        is_late = time.monotonic() - self.written >= GATHER_SECONDS
        if self.measures or is_late or len(self.waiting) >= MAXIMUM_WAITING:
            self.write_waiting_()
        # Its own phase, so that the costs of recording are not counted to the next round's first phase.
        self.efforts.count_("settle")
        if self.saving.is_due_(settled.number) or ends:
            self.save()
        if self.profiler is not None:
            self.profiler.after_round_(settled.number)
        self.efforts.count_("save")
        self.efforts.count_peaks_(enabled=self.measures)

    def write_waiting_(self) -> None:
        """Write the rounds that wait wherever they go, in their order: before every other event, save, and end."""
        rounds, self.waiting = self.waiting, []  # first: what a full disk refuses is not tried again
        self.written = time.monotonic()
        for settled in rounds:
            round_, numbers = settled.number, settled.numbers | settled.logged
            write_all((self.metrics, *self.trackers), round_, numbers)
            self.journal.write(round_, settled.journal)
            self.table.print_row(settled.duration, self.memory | numbers, self.memory_text, settled.logged)
            self.tell_of_round(settled, numbers)
            self.tell_of_mirror()
            self.tell_of_alarms(round_, settled.alarms)
        if rounds:
            self.own_parts.write_when_due_()

    def measure_(self, round_: int) -> list[Alarm]:
        """Measure memory against the plan, write it into the ledger, and report what grows. Returns alarms."""
        # Before memory is measured: pages that a phase has freed are not growth.
        release_freed_memory()
        if not self.memory and gc.get_freeze_count():
            # Within `freeze_gc`, which takes it back at the end. What the first round has loaded, such as torch's
            # compiler with its million objects, stays: later collections need not walk through it.
            gc.freeze()
        efforts, parts = self.unmeasured, self.unmeasured_parts
        statement, findings = self.contract.settle_round_(round_, efforts | parts)
        record = self.contract.record(statement, efforts, envs=self.composed.live_envs(), peak=self.efforts.highest)
        self.ledger.write(round_, record)
        self.memory, self.memory_text = ledger_metrics(record), ledger_text(record)
        self.unmeasured, self.unmeasured_parts = {}, {}
        self.report_findings(round_, findings)
        return lost_workers(round_, record["exchange"])

    def waiting_alarms(self, round_: int, efforts: Mapping[str, Effort]) -> list[Alarm]:
        """Return alarms that threads wait for cores; none with one thread, or if a GPU or workers compute."""
        composed = self.composed
        if composed.config.threads == 1 or composed.device.type != "cpu" or composed.plan.workers:
            return []
        phase_efforts = [efforts[phase.name] for phase in composed.trainer.phases if phase.name in efforts]
        seconds = sum(effort.seconds for effort in phase_efforts)
        cpu_seconds = sum(effort.cpu_seconds for effort in phase_efforts)
        return waiting_threads(round_, composed.config.threads, seconds, cpu_seconds)

    def begin_(self, *, save: bool, recorded: range) -> None:
        """Report doubts, save a checkpoint if `save`, and start torch's profiler if rounds are to be profiled.

        Args:
            save: whether there is no checkpoint yet, so that a first checkpoint is written.
            recorded: rounds to profile; an empty range for none.
        """
        self.composed.listen_(self.callbacks.on_episode)
        self.tell_of_doubts()
        if save:
            self.save()
        self.measures = self.measuring.is_due_(self.composed.trainer.progress.round + 1)
        self.efforts.count_peaks_(enabled=self.measures)
        if recorded:
            trainer = self.composed.trainer
            self.profiler = Profiler(recorded, self.folder.profile, self.composed.device, trainer, self.voice)
            self.profiler.announce_recording()
            self.profiler.begin_(trainer.progress.round + 1)

    def tell_of_round(self, settled: SettledRound, numbers: Mapping[str, float]) -> None:
        """Tell listeners the round's numbers in one line; the table has shown them."""
        recipe, round_ = self.recipe, settled.number
        rounds, left_seconds = self.composed.config.rounds, settled.duration.left_seconds
        curves = {title.replace(",", ""): numbers[name] for title, name in recipe.curves.items() if name in numbers}
        figures = [f"{title} {value:.4g}" for title, value in curves.items()]
        # None where memory is first measured after a later round.
        figures += [f"{self.memory[RESIDENT_COLUMN.name] / 1e6:.0f} MB"] if self.memory else []
        figures += [format_duration(settled.duration.seconds), f"{short_duration(left_seconds)} left"]
        line = f"{recipe.layout.round} {round_}/{rounds}: {', '.join(figures)}"
        values = {"round": round_, "rounds": rounds, "left_seconds": left_seconds, "metrics": dict(numbers)}
        self.voice.notify_listeners("round", line, settled.ended, **values)

    def tell_of_alarms(self, round_: int, found: Sequence[Alarm]) -> None:
        """Write alarms to the disk, and show new alarms, a line for each kind."""
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
                f"{'':>{ROUND_WIDTH}} {line}", style="dim", highlight=False, markup=False, soft_wrap=True
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
            # The save's own time and peak must not count to the phase that it interrupts.
            progress = self.composed.trainer.progress
            self.efforts.end_part_(self.composed.trainer.phases[progress.phase].name)
            self.save()
            self.efforts.count_("save")
            line = f"SIGUSR2: a checkpoint is saved, in round {progress.round + 1}; the run goes on"
            self.voice.show_line(line, "signal", signal="SIGUSR2", round=progress.round)
        if self.stop.signal and not self.heard:  # the console was told at once
            self.heard, name = True, Signals(self.stop.signal).name
            line = f"{name}: the run stops with a checkpoint"
            self.voice.notify_listeners("signal", line, signal=name, round=self.composed.trainer.progress.round)
        return self.stop.is_wanted or self.over_budget_()

    def over_budget_(self) -> bool:
        """Return whether the run must stop at its budget; twenty times a second, as it writes what has waited long."""
        now = time.monotonic()
        if now - self.looked < CHECK_SECONDS:
            return False
        self.looked = now
        if self.waiting and now - self.written >= LATEST_SECONDS:
            self.write_waiting_()
        return self.contract.over_budget_()

    def save(self) -> None:
        """Write a checkpoint of everything, between rounds or within one."""
        self.write_waiting_()
        with self.saving.measure_cost():
            self._save_()

    def _save_(self) -> None:
        """Write the checkpoint once what other processes keep is in the state, and every record is on the disk."""
        self.tell_of_folder()  # the folder may have been renamed; the descriptor still leads to it
        # Workers first: until they have sent what they know, the state tree is behind the round that is saved.
        self.composed.gather_()
        self.tell_of_doubts()
        trainer, config = self.composed.trainer, self.composed.config
        progress = trainer.progress
        step = sum(phase.steps() for phase in trainer.phases[: progress.phase]) + progress.step
        facts: dict[str, Any] = run_facts(self.composed) | {"versions": version_facts()}
        facts["sources"] = self.sources
        # No checkpoint may know of a round that the records on the disk do not have.
        for records in self.records:
            records.sync()
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

    @property
    def records(self) -> Sequence[JsonlSink]:
        """The files of the run folder with a line for each round, or for some."""
        return self.metrics, self.journal, self.alarms, self.ledger, self.findings

    def close(self) -> None:
        """Close the files, and release what the run computed on."""
        # The profiler first: its last trace is written into the folder, and says so through the console.
        if self.profiler is not None:
            self.profiler.close()
        try:
            self.write_waiting_()
        finally:
            self.composed.close()
            self.contract.monitor.close()
            for sink in (*self.trackers, *self.records):
                sink.close()


def build_watcher(
    composed: Run,
    folder: RunFolder,
    table: ConsoleTable,
    *,
    events: RunEvents,
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

        trackers = open_trackers(composed.config, folder, events.show_line, resume_at=last_round)
        for tracker in trackers:
            open_files.callback(tracker.close)
        watcher = Recorder(
            composed=composed,
            folder=folder,
            table=table,
            voice=events,
            stop=stop,
            mirror=mirror,
            contract=MemoryContract(
                composed.trainer.run,
                composed.plan,
                composed.device,
                extra_bytes=lambda: held_bytes(trackers) | mirror.buffer_bytes(),
                elsewhere=composed.elsewhere,
                exchange=composed.exchange,
            ),
            metrics=open_(folder.metrics),
            trackers=trackers,
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
