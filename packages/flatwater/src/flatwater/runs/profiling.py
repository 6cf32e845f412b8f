"""Traces of rounds by torch's profiler, each of a bounded size, for Perfetto or Chrome.

A trace has every operation with its times, under the phase and the step that it belongs to. The numbers of the run stay
the same; the recorded rounds take longer and more memory. Workers are processes of their own, and are not recorded.

Torch's recorder grows with each operation, and tells their number only when it has ended. So the first step of a phase
has a trace of its own. From its number of operations follows how many of the next steps fit into a second trace. Later
steps may have more operations, such as when learning begins: so the growth of the heap ends a trace as well.
"""

import gzip
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.autograd.profiler import profile, record_function

from flatwater.memory.planner import Plan, require_fit
from flatwater.rundir.events import RunEvents
from flatwater.runs.machine import release_freed_memory
from flatwater.runs.run import Run
from flatwater.trainers.loop import Trainer
from flatwater_watch.errors import ConfigError
from flatwater_watch.meters.allocator import allocator_totals
from flatwater_watch.meters.process import resident_bytes
from flatwater_watch.progress import count_steps
from flatwater_watch.sanitize import short_repr
from flatwater_watch.units import format_bytes

MAXIMUM_ROUNDS = 100
"""Most rounds recorded of one run: a round's traces have some megabytes, and recording makes the round slow."""
MAXIMUM_OPERATIONS = 100_000
"""Most operations in one trace; a single step is recorded whole even if it has more."""
OPERATION_BYTES = 1_800
"""RAM per operation while a trace is written; 1,665 bytes were measured."""
RECORDED_BYTES = 220
"""RAM per operation while it is recorded: 230 to 256 were measured."""
TRACE_BYTES = MAXIMUM_OPERATIONS * OPERATION_BYTES
TRACE_OWNER = "profile.trace"
BLOCK_BYTES = 1 << 20
"""Bytes of a trace that are compressed at once."""
OPERATION_MARK = b'"ph": "X"'
"""Text in a trace that marks an operation with a beginning and an end."""
_ROUNDS_FORM = re.compile(r"rounds=(\d{1,12})(?:-(\d{1,12}))?")


def profiled_rounds(text: str) -> range:
    """Return the rounds of `rounds=3` or `rounds=3-5`.

    Raises:
        ConfigError: the text has another form, or stands for no rounds, or for too many.
    """
    match = _ROUNDS_FORM.fullmatch(text)
    if match is None:
        raise ConfigError(f"--profile {short_repr(text)}: expected rounds=N or rounds=FIRST-LAST, such as rounds=3")
    first_round, last_round = int(match[1]), int(match[2] or match[1])  # a single round ends with itself
    if not 1 <= first_round <= last_round < first_round + MAXIMUM_ROUNDS:
        raise ConfigError(
            f"--profile {short_repr(text)}: expected 1 to {MAXIMUM_ROUNDS} rounds, counted from 1, "
            "LAST not before FIRST"
        )
    return range(first_round, last_round + 1)


def check_profiled_rounds(rounds: range, rounds_done: int, rounds_in_all: int) -> None:
    """Refuse rounds to profile, counted from 1, that are not among rounds `rounds_done + 1` to `rounds_in_all`.

    Raises:
        ConfigError: a round is trained already, or beyond the last round.
    """
    if rounds[0] <= rounds_done or rounds[-1] > rounds_in_all:
        option = f"rounds={rounds[0]}" if len(rounds) == 1 else f"rounds={rounds[0]}-{rounds[-1]}"
        expected = f"expected rounds within {rounds_done + 1} to {rounds_in_all}, which are not trained yet"
        none_left = "all rounds of the run are trained. Add rounds with --rounds N"
        raise ConfigError(f"--profile {option}: {expected if rounds_done < rounds_in_all else none_left}")


def run_with_traces(composed_run: Run, rounds: range | None) -> Run:
    """Return the run with a plan that includes the memory of traces; with `rounds` None, the run as it is.

    Raises:
        MemoryLimitError: the run does not fit with the memory of traces.
    """
    if rounds is None or composed_run.device.type != "cpu":  # on a GPU the plan is of the GPU's memory
        return composed_run
    plan = replace(composed_run.plan, owners={**composed_run.plan.owners, TRACE_OWNER: TRACE_BYTES})
    if not composed_run.config.start_over_budget:
        require_fit(plan if plan.fits else _with_advice(plan))
    return replace(composed_run, plan=plan)


def _with_advice(plan: Plan) -> Plan:
    return replace(plan, suggestions=(*plan.suggestions, f"without --profile: {format_bytes(TRACE_BYTES)} less"))


@dataclass
class Profiler:
    """Records some rounds of a run with torch's profiler, in one or two traces for each phase of a round."""

    rounds: range
    """Rounds to record; becomes empty when a trace cannot be written."""
    folder: Path
    """Folder of the traces; made when the first trace is written."""
    device: torch.device
    trainer: Trainer[Any, Any]
    """Tells the phase and number of the next step."""
    events: RunEvents
    _recorder: profile | None = field(default=None, init=False)
    """Torch's recorder of the trace; None while no trace is recorded."""
    _step_label: record_function | None = field(default=None, init=False)
    """Label in the trace of the step that runs now."""
    _round: int = field(default=0, init=False)
    _phase: str = field(default="", init=False)
    """Phase of the trace, or of the last trace."""
    _first_step: int = field(default=0, init=False)
    """First step of the trace."""
    _step_limit: int = field(default=0, init=False)
    """Most steps of the trace; 0 for the first trace of a phase, which has a single step."""
    _done_steps: int = field(default=0, init=False)
    """Number of complete steps in the trace."""
    _heap_at_start: int = field(default=0, init=False)
    """Bytes in use when the trace began."""
    _oversized_phases: set[str] = field(default_factory=set, init=False)
    """Phases of which a single step has more operations than `MAXIMUM_OPERATIONS`."""

    def announce_recording(self) -> None:
        """Print which rounds are recorded, how large their traces are, and their folder."""
        rounds = f"round {self.rounds[0]}" if len(self.rounds) == 1 else f"rounds {self.rounds[0]} to {self.rounds[-1]}"
        self.events.show_line(
            f"records {rounds}: traces of one step of each phase, and of the next steps up to {MAXIMUM_OPERATIONS:,} "
            f"operations, which take up to {format_bytes(TRACE_BYTES)}, to profile/ in the run folder",
            style="",
        )

    def begin_(self, round_: int) -> None:
        """Start the first trace of the round that begins, if it is one of the rounds to record."""
        self._round, self._phase = round_, ""  # no phase of this round has a trace yet
        if round_ in self.rounds and (next_step := self._next_step()):
            phase, step = next_step
            self._start_trace_(phase, step, step_limit=0)  # a trace of one step

    def after_step_(self) -> None:
        """After a step of the run, keep the open trace for the next step, or write it and start the trace that follows.

        That is the second trace of a phase, if a step is small enough for one, or the first trace of the next phase.
        """
        if self._round not in self.rounds:
            return
        next_step = self._next_step()
        is_same_phase = next_step is not None and next_step[0] == self._phase
        step_limit = 0  # of a second trace of the phase; 0 for no such trace
        if self._recorder is not None:
            self._done_steps += 1
            if next_step is not None and is_same_phase and self._has_room():
                phase, step = next_step
                self._label_step_(f"{phase} {step}")
                return
            # The trace is full, or the phase has ended.
            operations = self._end_trace_()
            # The first trace of a phase gives the operations of one step, and so the number of steps of the second.
            step_limit = 0 if self._step_limit else MAXIMUM_OPERATIONS // max(1, operations)
            self._show_omitted_steps_(operations, phase_continues=is_same_phase and not step_limit)
        # A second trace of the same phase, or the first of the next phase. `rounds` is empty after a full disk.
        if next_step is not None and self._round in self.rounds and (step_limit or not is_same_phase):
            phase, step = next_step
            self._start_trace_(phase, step, step_limit=step_limit if is_same_phase else 0)

    def _show_omitted_steps_(self, operations: int, *, phase_continues: bool) -> None:
        """Print which steps of the phase are not recorded, if any are not, after a trace with this many operations.

        Args:
            operations: operations in the trace; if its only step has too many, the phase is recorded no more.
            phase_continues: whether further steps of the phase follow, and none of them is recorded.
        """
        if operations > MAXIMUM_OPERATIONS and self._done_steps == 1:
            self._oversized_phases.add(self._phase)
            sentence = f"a step of {self._phase} has more operations than {MAXIMUM_OPERATIONS:,}, the most in a trace"
            self.events.show_line(f"{sentence}: no other step of this phase is recorded")
        # After a full disk `rounds` is empty, and the message about that is enough.
        elif phase_continues and self._round in self.rounds:
            self.events.show_line(f"the other steps of {self._phase} in round {self._round} are not recorded", style="")

    def _has_room(self) -> bool:
        """Return whether another step of the phase fits into the open trace."""
        # The growth of the heap is checked as well, as a later step may have more operations than the first.
        heap_growth = _bytes_in_use() - self._heap_at_start
        return self._done_steps < self._step_limit and heap_growth < MAXIMUM_OPERATIONS * RECORDED_BYTES

    def after_round_(self, round_: int) -> None:
        """Start the first trace of the next round, if it is one to record; called when `round_` is saved."""
        self.begin_(round_ + 1)

    def close(self) -> None:
        """Write the open trace, if there is one, when the run ends or stops within a round."""
        if self._recorder is not None:
            self._end_trace_()

    def _next_step(self) -> tuple[str, int] | None:
        """Return the phase and the number, from 1, of the step that comes next; None after the round's last step."""
        progress, phases = self.trainer.progress, self.trainer.phases
        # From the phase at work on; phases without steps in this round are passed over.
        for index in range(progress.phase, len(phases)):
            done_steps = progress.step if index == progress.phase else 0
            if done_steps < phases[index].steps():
                return phases[index].name, done_steps + 1
        return None

    def _start_trace_(self, phase: str, first_step: int, *, step_limit: int) -> None:
        """Start a trace with step number `first_step` of a phase, for `step_limit` steps, or for one step if that is 0.

        Nothing is recorded of a phase in `_oversized_phases`.
        """
        self._phase = phase
        self._first_step = first_step
        self._step_limit = step_limit
        self._done_steps = 0
        if phase in self._oversized_phases:
            return
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler's library prints to stderr
        # Not `torch.profiler.profile`, which would import torch's compiler, 74 MB, for one setting.
        device = "cuda" if self.device.type == "cuda" else None
        self._recorder = profile(use_kineto=True, use_device=device)
        self._recorder.__enter__()  # type: ignore[no-untyped-call]  # torch's own has no types
        self._heap_at_start = _bytes_in_use()
        self._label_step_(f"{phase} {first_step}")

    def _end_trace_(self) -> int:
        """End the trace and write its file. Returns its number of operations; 0 if it cannot be written."""
        # Unset first, so that `close` does not write the same trace again after a fault.
        recording, self._recorder = self._recorder, None
        assert recording is not None  # noqa: S101  (the callers check it)
        self._label_step_("")  # ends the label of the last step
        recording.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        # No step is complete where the run stops within the first one.
        last_step = self._first_step + max(0, self._done_steps - 1)
        steps = f"{self._first_step}-{last_step}" if last_step > self._first_step else f"{self._first_step}"
        path = self.folder / f"round-{self._round:06}-{self._phase}-{steps}.json.gz"
        try:
            self.folder.mkdir(exist_ok=True)
            operations = _export_trace(recording, path)
            size = path.stat().st_size
        except (OSError, RuntimeError) as error:
            self.rounds = range(0)  # nothing more is recorded
            reason = f"the trace of round {self._round} cannot be written ({error})"
            self.events.show_line(f"{reason}. Recording ends, and the run goes on")
            return 0
        sentence = f"a trace is in profile/{path.name}, {operations:,} operations, {format_bytes(size)}"
        self.events.show_line(f"{sentence}: open it at https://ui.perfetto.dev", style="")
        # Deleted before the heap is trimmed: the recording holds hundreds of bytes for each operation.
        del recording
        release_freed_memory()
        return operations

    def _label_step_(self, name: str) -> None:
        """End the label of the last step in the trace, and begin the label `name`; an empty name begins none."""
        if self._step_label is not None:
            self._step_label.__exit__(None, None, None)
        self._step_label = record_function(name) if name else None
        if self._step_label is not None:
            self._step_label.__enter__()  # type: ignore[no-untyped-call]  # torch's own has no types


def _bytes_in_use() -> int:
    """Return the bytes in use on the heap; the process's resident bytes if the allocator does not tell."""
    totals = allocator_totals()
    return resident_bytes() if totals is None else totals.in_use


def _export_trace(recording: profile, path: Path) -> int:
    """Write a trace as a .json.gz file. Returns the number of operations in it.

    The trace is compressed here, block by block, in 5 µs an operation: torch's own compression takes 40 µs.

    Raises:
        OSError: the trace cannot be written.
    """
    operations, block = 0, b""
    with TemporaryDirectory(dir=path.parent, prefix=".") as temporary:  # no other user can put a link into it
        raw_file, packed_file = Path(temporary, "trace.json"), Path(temporary, "trace.json.gz")
        recording.export_chrome_trace(str(raw_file))  # type: ignore[no-untyped-call]  # torch's own has no types
        blocks = -(-raw_file.stat().st_size // BLOCK_BYTES)  # rounded up
        with raw_file.open("rb") as source, gzip.open(packed_file, "wb", compresslevel=6) as target:
            for _ in count_steps("MiB of a trace", range(blocks)):
                block = source.read(BLOCK_BYTES)
                operations += block.count(OPERATION_MARK)
                target.write(block)
        if not block.rstrip().endswith(b"}"):  # a trace is one JSON object
            raise OSError("the file is incomplete: the disk may be full")  # torch raises nothing in that case
        os.replace(packed_file, path)  # noqa: PTH105  (both lead through the descriptor of the folder)
    return operations
