"""The loop's recorder: console, metrics, ledger, checkpoints, alarms, signals and costs of phases of one run."""

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
from flatwater.metrics.alarms import (
    Alarm,
    alarm_lines,
    group_by_kind,
    lost_worker_alarms,
    take_new_alarms_,
    waiting_thread_alarms,
)
from flatwater.metrics.console import ConsoleTable, RoundTime
from flatwater.metrics.jsonl import JsonlSink
from flatwater.metrics.short_numbers import short_duration, whole_mebibytes
from flatwater.metrics.table_layout import RESIDENT_COLUMN, ROUND_WIDTH
from flatwater.mirror.uploader import Mirror, NoMirror
from flatwater.recipe import Recipe, recipe_of_config
from flatwater.rundir.events import RunEvents
from flatwater.rundir.inexact_reasons import write_inexact_reasons
from flatwater.rundir.layout import RunFolder
from flatwater.runs.callbacks import NO_CALLBACKS, Callbacks, Round, RoundMetrics
from flatwater.runs.fingerprint import arithmetic_hash, run_facts, saved_arithmetics, source_hashes, version_facts
from flatwater.runs.machine import release_freed_memory
from flatwater.runs.memory_contract import MemoryContract, budget_stop_text, ledger_metrics, ledger_text
from flatwater.runs.phase_meter import PhaseMeter, cuda_event, sum_efforts
from flatwater.runs.profiling import Profiler
from flatwater.runs.recipe_parts import RecipeParts
from flatwater.runs.run import Run
from flatwater.runs.signals import StopRequest
from flatwater.runs.trackers import open_trackers, queued_bytes_by_owner
from flatwater.runs.work_schedule import WorkSchedule
from flatwater.state.garbage import freeze_new_objects_
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.finding_text import brief_text, finding_lines
from flatwater_watch.events.background import BackgroundSink
from flatwater_watch.units import format_duration

CHECK_SECONDS = 0.05
"""Seconds between two checks of the memory in use: a check costs as much as a part of a small step."""
GATHER_SECONDS = 0.5
"""Seconds for which rounds gather before they are written: a short round alone takes three times as long to write."""
LATEST_SECONDS = 1.0
"""Seconds after which gathered rounds are written between two steps, where a longer round follows."""
MAXIMUM_UNWRITTEN = 16
"""Most rounds that gather: more are written no faster, and would weigh on memory and on the trackers' queues."""


@dataclass(frozen=True)
class SettledRound:
    """A complete round, with all that is recorded of it."""

    number: int
    numbers: dict[str, float]
    """Metrics by name."""
    logged: dict[str, float]
    """Numbers that the user's callbacks logged."""
    alarms: Sequence[Alarm]
    journal: Mapping[str, Any]
    """The round's line in the recipe's own file, without the round's number."""
    duration: RoundTime
    ended: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class Recorder:
    """The loop's `Watcher`: it shows, records and saves a run. There is one in each process that trains."""

    composed_run: Run
    folder: RunFolder
    table: ConsoleTable
    events: RunEvents
    stop: StopRequest
    mirror: Mirror | NoMirror
    contract: MemoryContract
    metrics: JsonlSink
    trackers: Sequence[BackgroundSink]
    journal: JsonlSink
    alarms: JsonlSink
    ledger: JsonlSink
    findings: JsonlSink
    callbacks: Callbacks = NO_CALLBACKS
    """The user's functions."""
    alarm_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    phase_meter: PhaseMeter = field(default_factory=PhaseMeter)
    """Costs of the current round's phases. The cost of saving counts to the next round, as the row of this round is
    on the disk by then."""
    known_path: Path = field(init=False)
    """Path of the run folder at the last save; a user may have renamed the folder since."""
    profiler: Profiler | None = None
    """Traces the rounds that the user wants profiled; None if there are none."""
    code_hashes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Hashes of the user's code that the settings name, at the time when the run was composed."""
    arithmetics: set[str] = field(default_factory=set)
    """Fingerprints of all machines that the run was computed on since its beginning; see `arithmetic_hash`."""
    reported_doubts: int = 0
    """Number of doubts that were reported so far; doubts are reasons why a resume is not bit for bit."""
    signal_reported: bool = False
    """Whether listeners were told of the signal that ends the run."""
    last_check_time: float = 0.0
    """Time of the last check of the memory in use."""
    unwritten_rounds: list[SettledRound] = field(default_factory=list)
    """Complete rounds that gather until they are written together."""
    last_write_time: float = 0.0
    """Time when rounds were last written."""
    memory_metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of the last measurement of memory; empty before the first."""
    memory_text: str = ""
    """The terminal's line about the last measurement of memory."""
    unmeasured_efforts: dict[str, Effort] = field(default_factory=dict)
    """Efforts by phase, summed over the rounds since the last measurement of memory."""
    unmeasured_part_efforts: dict[str, Effort] = field(default_factory=dict)
    """Efforts by part of a step, summed over the same rounds."""
    memory_schedule: WorkSchedule = field(init=False)
    """Decides after which rounds memory is measured."""
    measures_memory: bool = True
    """Whether memory is measured at the end of the current round."""
    save_schedule: WorkSchedule = field(init=False)
    """Decides after which rounds a checkpoint is saved."""
    recipe: Recipe = field(init=False)
    recipe_parts: RecipeParts = field(init=False)
    """Writes the recipe's own parts of the run's page."""

    def __post_init__(self) -> None:
        """Set up the schedules, and let gathered rounds be written before any other event of the run is shown."""
        self.known_path = self.folder.path
        config = self.composed_run.config
        self.memory_schedule = WorkSchedule(config.rounds, every=config.ledger_every)
        # Without a fixed interval, a census of memory too may take only a small share of the time.
        self.contract.paced = not config.ledger_every
        keep = config.checkpoints
        self.save_schedule = WorkSchedule(config.rounds, every=keep.every, always_every=keep.keep_every)
        self.recipe = recipe_of_config(config)
        self.recipe_parts = RecipeParts(self.recipe, self.folder, self.events.show_line)
        self.events.before_event = self.write_rounds_

    def on_step(self, phase: str, steps_done: int, total: int) -> None:
        """Count a finished step, number `steps_done` of `total`, to its phase, and move the progress bar."""
        self.phase_meter.count_step_(phase, ends=steps_done == total)
        self.table.show_phase_(phase, steps_done, total)
        if self.profiler is not None:
            self.profiler.after_step_()

    def on_round(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Take in a complete round: measure memory if that is due, call the user's `on_round`, record and save.

        Records are written before the checkpoint, so no round is ever missing: a killed run resumes from its last
        checkpoint, cuts the records off there and writes them again.
        """
        efforts = self.phase_meter.take_()
        alarms = [*self.composed_run.alarms(round_, metrics), *self.thread_alarms(round_, efforts)]
        times = {f"time/{name}": effort.seconds for name, effort in efforts.items()}
        numbers = dict(self.composed_run.pace(efforts)) | dict(metrics) | times | self.mirror.metrics()
        self.unmeasured_efforts = sum_efforts(self.unmeasured_efforts, efforts)
        self.unmeasured_part_efforts = sum_efforts(self.unmeasured_part_efforts, self.composed_run.parts())
        if self.measures_memory:
            with self.memory_schedule.measure_cost():
                alarms += self.measure_memory_(round_)
            numbers |= self.memory_metrics
        logged_numbers = dict(self.composed_run.take_logged_())
        journal = self.composed_run.record()
        callback_failed = True  # until it returns
        try:
            if self.callbacks.on_round is not None:
                user_round = Round(
                    number=round_,
                    rounds=self.composed_run.config.rounds,
                    metrics=RoundMetrics(numbers | logged_numbers),
                    stop=self.stop.ask_,
                    logged=logged_numbers,  # `user_round.log` adds to it
                )
                self.callbacks.on_round(user_round)
            callback_failed = False
        finally:
            # An exception of `on_round` ends the run: the round must be recorded and saved first.
            duration = self.table.end_round_()
            settled_round = SettledRound(round_, numbers, logged_numbers, alarms, journal, duration)
            self.record_round_(settled_round, run_ends=callback_failed)

    def record_round_(self, settled_round: SettledRound, *, run_ends: bool) -> None:
        """Write a round now, or keep it to be written with later rounds; save a checkpoint if due or the run ends."""
        self.unwritten_rounds.append(settled_round)
        self.measures_memory = self.memory_schedule.is_due_(settled_round.number + 1)
        # Before memory is measured all rounds are written: those that wait would count as the run's memory.
        is_late = time.monotonic() - self.last_write_time >= GATHER_SECONDS
        if self.measures_memory or is_late or len(self.unwritten_rounds) >= MAXIMUM_UNWRITTEN:
            self.write_rounds_()
        # Its own phase, so that the costs of recording are not counted to the next round's first phase.
        self.phase_meter.count_step_("settle")
        is_saved = self.save_schedule.is_due_(settled_round.number) or run_ends
        if is_saved:
            self.save()
        if self.profiler is not None:
            self.profiler.after_round_(settled_round.number)
        # The profiler's start takes seconds.
        self.phase_meter.count_step_("save", is_idle=not is_saved and self.profiler is None)
        self.phase_meter.count_peaks_(enabled=self.measures_memory)  # the memory's record alone shows peaks

    def write_rounds_(self) -> None:
        """Write the gathered rounds, in order, to files, trackers, terminal and listeners, before any other event."""
        # Emptied first: rounds that a full disk refuses are not tried again.
        rounds, self.unwritten_rounds = self.unwritten_rounds, []
        self.last_write_time = time.monotonic()
        if not rounds:
            return
        rows = [(settled.number, settled.numbers | settled.logged) for settled in rounds]
        # All rows of a file in one write: a system call for each costs as much as all else about a plain round.
        self.metrics.write_rounds(rows)
        for tracker in self.trackers:
            tracker.write_rounds(rows)
        self.journal.write_rounds([(settled.number, settled.journal) for settled in rounds])
        for settled, (round_, numbers) in zip(rounds, rows, strict=True):
            self.table.print_row_(settled.duration, self.memory_metrics | numbers, self.memory_text, settled.logged)
            self.report_round(settled, numbers)
            self.report_mirror()
            self.report_alarms(round_, settled.alarms)
        self.recipe_parts.write_when_due_()

    def measure_memory_(self, round_: int) -> list[Alarm]:
        """Measure memory, write the ledger's line, and report findings of growth. Returns alarms about lost workers."""
        # Before memory is measured: pages that a phase has freed are not growth.
        release_freed_memory()
        if not self.memory_metrics:
            freeze_new_objects_()  # after the first round only: those of modules that it has loaded stay
        efforts, parts = self.unmeasured_efforts, self.unmeasured_part_efforts
        statement, findings = self.contract.settle_round_(round_, efforts | parts)
        record = self.contract.record(
            statement, efforts, envs=self.composed_run.live_envs(), peak=self.phase_meter.highest
        )
        self.ledger.write(round_, record)
        self.memory_metrics, self.memory_text = ledger_metrics(record), ledger_text(record)
        self.unmeasured_efforts, self.unmeasured_part_efforts = {}, {}
        self.report_findings(round_, findings)
        return lost_worker_alarms(round_, record["exchange"])

    def thread_alarms(self, round_: int, efforts: Mapping[str, Effort]) -> list[Alarm]:
        """Return an alarm if threads wait for cores; none with one thread, or if a GPU or workers compute."""
        composed_run = self.composed_run
        if composed_run.config.threads == 1 or composed_run.device.type != "cpu" or composed_run.plan.workers:
            return []
        phase_efforts = [efforts[phase.name] for phase in composed_run.trainer.phases if phase.name in efforts]
        seconds = sum(effort.seconds for effort in phase_efforts)
        cpu_seconds = sum(effort.cpu_seconds for effort in phase_efforts)
        return waiting_thread_alarms(round_, composed_run.config.threads, seconds, cpu_seconds)

    def begin_(self, *, save: bool, profiled_rounds: range) -> None:
        """Prepare for the first round of this process: register `on_episode`, report doubts, start the profiler.

        Args:
            save: whether there is no checkpoint yet, so that a first checkpoint is written.
            profiled_rounds: rounds to record with torch's profiler; an empty range for none.
        """
        self.composed_run.listen_(self.callbacks.on_episode)
        self.report_doubts()
        if save:
            self.save()
        next_round = self.composed_run.trainer.progress.round + 1
        self.measures_memory = self.memory_schedule.is_due_(next_round)
        self.phase_meter.count_peaks_(enabled=self.measures_memory)
        if profiled_rounds:
            trainer = self.composed_run.trainer
            self.profiler = Profiler(
                profiled_rounds, self.folder.profile, self.composed_run.device, trainer, self.events
            )
            self.profiler.announce_recording()
            self.profiler.begin_(next_round)

    def report_round(self, settled_round: SettledRound, numbers: Mapping[str, float]) -> None:
        """Send listeners the round's numbers, as one line and as values; the terminal's table has shown them."""
        recipe, round_ = self.recipe, settled_round.number
        rounds, left_seconds = self.composed_run.config.rounds, settled_round.duration.left_seconds
        # Commas separate the figures in the line, so titles have none.
        curves = {title.replace(",", ""): numbers[name] for title, name in recipe.curves.items() if name in numbers}
        figures = [f"{title} {value:.4g}" for title, value in curves.items()]
        # Resident memory is missing until memory is measured for the first time.
        figures += [f"{whole_mebibytes(self.memory_metrics[RESIDENT_COLUMN.name])} MiB"] if self.memory_metrics else []
        figures += [format_duration(settled_round.duration.seconds), f"{short_duration(left_seconds)} left"]
        line = f"{recipe.layout.round} {round_}/{rounds}: {', '.join(figures)}"
        values = {"round": round_, "rounds": rounds, "left_seconds": left_seconds, "metrics": dict(numbers)}
        self.events.notify_listeners("round", line, settled_round.ended, **values)

    def report_alarms(self, round_: int, round_alarms: Sequence[Alarm]) -> None:
        """Write the round's alarms, if any, to `alarms.jsonl`; print those that are new in this run, a line a kind."""
        if not round_alarms:
            return
        self.alarms.write(round_, {"alarms": [f"{alarm.kind}: {alarm.message}" for alarm in round_alarms]})
        for alarms in group_by_kind(take_new_alarms_(self.alarm_counts, round_alarms)):
            (line,) = alarm_lines(alarms)  # a single line, as these alarms are of one kind
            self.events.console.print(Text.assemble(("alarm:", "yellow"), " ", line))
            places = [alarm.where for alarm in alarms]
            self.events.notify_listeners("alarm", line, round=round_, alarm=alarms[0].kind, where=places)

    def report_findings(self, round_: int, findings: Sequence[Finding]) -> None:
        """Write findings about the run's memory to `findings.jsonl`, print them, and tell the listeners."""
        for finding in findings:
            self.findings.write(round_, finding.to_json())
            for line in finding_lines(finding):
                self.events.console.print(line, style="yellow", highlight=False, markup=False)
            self.events.notify_listeners("finding", brief_text(finding), round=round_, **finding.to_json())

    def report_doubts(self) -> None:
        """Print and write new doubts: reasons why the run cannot be resumed bit for bit. Each is printed once."""
        doubts = self.composed_run.doubts
        for line in doubts[self.reported_doubts :]:
            self.events.show_line(f"not exact: {line}", exact=False)
        if len(doubts) > self.reported_doubts:
            write_inexact_reasons(self.folder, doubts)
        self.reported_doubts = len(doubts)

    def report_moved_folder_(self) -> None:
        """Print the run folder's new path, if somebody has renamed the folder since the last save."""
        current_path = self.folder.with_current_name.path
        if current_path != self.known_path:
            self.known_path = current_path
            self.events.show_line(f"the run folder was moved: the run goes on in {current_path}")

    def report_mirror(self) -> None:
        """Print the mirror's new messages and its status line."""
        for line in self.mirror.take_messages():
            self.events.show_line(line)
        if line := self.mirror.status_line():
            self.events.console.print(
                f"{'':>{ROUND_WIDTH}} {line}", style="dim", highlight=False, markup=False, soft_wrap=True
            )

    def explain_stop(self) -> None:
        """If the run stops at its budget, print why, and report which memory has grown."""
        if self.contract.breach:
            plan, resident = self.contract.plan, self.contract.breach  # `breach`: the bytes at the stop, else 0
            self.events.show_line(
                budget_stop_text(plan, resident), "budget", resident=resident, budget=plan.budget_bytes
            )
            self.report_findings(self.composed_run.trainer.progress.round, self.contract.monitor.conclude())

    def should_stop(self) -> bool:
        """Return whether the run must stop, by a signal or its budget; before, save if SIGUSR2 asks for it."""
        # Called after each step. Handlers only set flags, so no checkpoint is saved while a step is half done.
        if self.stop.asks_to_save_():
            self._save_within_round_()
        if self.stop.signal and not self.signal_reported:
            self._report_signal_()
        return self.stop.is_wanted or self.poll_budget_()

    def _save_within_round_(self) -> None:
        """Save a checkpoint between two steps, as SIGUSR2 asks."""
        progress = self.composed_run.trainer.progress
        # The save's own time and peak must not count to the phase that it interrupts.
        self.phase_meter.end_phase_(self.composed_run.trainer.phases[progress.phase].name)
        self.save()
        self.phase_meter.count_step_("save")
        line = f"SIGUSR2: a checkpoint is saved, in round {progress.round + 1}; the run goes on"
        self.events.show_line(line, "signal", signal="SIGUSR2", round=progress.round)

    def _report_signal_(self) -> None:
        """Tell the listeners of the signal that ends the run; its handler has told the console already."""
        self.signal_reported = True
        name = Signals(self.stop.signal).name
        line = f"{name}: the run stops with a checkpoint"
        self.events.notify_listeners("signal", line, signal=name, round=self.composed_run.trainer.progress.round)

    def poll_budget_(self) -> bool:
        """Write rounds that wait too long. Returns whether memory is at its budget; False between two checks."""
        now = time.monotonic()
        if now - self.last_check_time < CHECK_SECONDS:
            return False
        self.last_check_time = now
        if self.unwritten_rounds and now - self.last_write_time >= LATEST_SECONDS:
            self.write_rounds_()
        return self.contract.is_over_budget_()

    def save(self) -> None:
        """Write the gathered rounds and a checkpoint, between two rounds or two steps; count the cost."""
        self.write_rounds_()
        with self.save_schedule.measure_cost():
            self._write_checkpoint_()

    def _write_checkpoint_(self) -> None:
        """Collect state from workers and worlds, flush the records, write a checkpoint, and offer it to the mirror."""
        self.report_moved_folder_()
        # Workers first: until they have sent their state, the state tree is behind the round that is saved.
        self.composed_run.gather_()
        self.report_doubts()
        trainer, config = self.composed_run.trainer, self.composed_run.config
        progress = trainer.progress
        # Steps of the round so far: those of its finished phases, and those of the phase at work.
        step = sum(phase.steps() for phase in trainer.phases[: progress.phase]) + progress.step
        facts: dict[str, Any] = run_facts(self.composed_run) | {"versions": version_facts()}
        facts["sources"] = self.code_hashes
        # Records before the checkpoint: it may know of no round that the records on the disk do not have.
        for records in self.records:
            records.sync()
        self.arithmetics |= {arithmetic_hash(), *self.composed_run.machines()}
        if len(self.arithmetics) > 1:
            facts["machines"] = sorted(self.arithmetics)
        manifest_path = save_checkpoint(
            self.folder.checkpoints,
            trainer.run,
            round=progress.round,
            step=step,
            facts=facts,
            config=config.checkpoints,
            protected_files=self.mirror.protected_manifests(),  # the mirror's thread reads their shards now
        )
        self.mirror.offer(manifest_path)  # after the save: the mirror reads files, never the run's memory
        line = f"checkpoint {manifest_path.stem}{f', within round {progress.round + 1}' if step else ''}"
        self.events.notify_listeners("saved", line, round=progress.round, step=step, checkpoint=manifest_path.name)

    @property
    def records(self) -> Sequence[JsonlSink]:
        """The `.jsonl` files of the run folder."""
        return self.metrics, self.journal, self.alarms, self.ledger, self.findings

    def close(self) -> None:
        """Write the gathered rounds, close all files and trackers, and end the run's workers and worlds."""
        # The profiler first: it writes its last trace into the folder, and prints a line about it.
        if self.profiler is not None:
            self.profiler.close()
        try:
            self.write_rounds_()
        finally:
            self.composed_run.close()
            self.contract.monitor.close()
            sinks: list[BackgroundSink | JsonlSink] = [*self.trackers, *self.records]
            for sink in sinks:
                sink.close()


def build_recorder(
    composed_run: Run,
    folder: RunFolder,
    table: ConsoleTable,
    *,
    events: RunEvents,
    stop: StopRequest,
    mirror: Mirror | NoMirror,
    callbacks: Callbacks = NO_CALLBACKS,
) -> Recorder:
    """Return the recorder of a run, with its files and trackers open to go on after the run's last complete round.

    Rows of later rounds, which a killed process recorded after its last checkpoint, are cut off.
    """
    last_round = composed_run.trainer.progress.round
    with ExitStack() as open_files:

        def open_sink(path: Path) -> JsonlSink:
            """Open a `.jsonl` file, to be closed if a later one cannot be opened."""
            sink = JsonlSink(path, resume_at=last_round)
            open_files.callback(sink.close)
            return sink

        trackers = open_trackers(composed_run.config, folder, events.show_line, resume_at=last_round)
        for tracker in trackers:
            open_files.callback(tracker.close)
        recorder = Recorder(
            composed_run=composed_run,
            folder=folder,
            table=table,
            events=events,
            stop=stop,
            mirror=mirror,
            contract=_build_contract(composed_run, trackers, mirror),
            metrics=open_sink(folder.metrics),
            trackers=trackers,
            journal=open_sink(folder.journal(recipe_of_config(composed_run.config).journal)),
            alarms=open_sink(folder.alarms),
            ledger=open_sink(folder.ledger),
            findings=open_sink(folder.findings),
            callbacks=callbacks,
            code_hashes=source_hashes(composed_run.config),
            # Of the newest checkpoint alone: it has the arithmetics of all earlier ones.
            arithmetics=saved_arithmetics([manifest.facts for manifest in list_checkpoints(folder.checkpoints)[-1:]]),
            phase_meter=PhaseMeter(make_event=cuda_event if composed_run.device.type == "cuda" else None),
        )
        open_files.pop_all()  # all are open: from here on `Recorder.close` closes them
    return recorder


def _build_contract(composed_run: Run, trackers: list[BackgroundSink], mirror: Mirror | NoMirror) -> MemoryContract:
    """Return the meter of the run's memory, which also counts the trackers' queues and the mirror's buffers."""
    return MemoryContract(
        root=composed_run.trainer.run,
        plan=composed_run.plan,
        device=composed_run.device,
        extra_bytes=lambda: queued_bytes_by_owner(trackers) | mirror.buffer_bytes(),
        worker_bytes=composed_run.worker_bytes,
        measure_exchange_=composed_run.measure_exchange_,
    )
