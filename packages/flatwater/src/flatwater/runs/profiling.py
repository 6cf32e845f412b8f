"""Traces of rounds by torch's profiler, which Perfetto and Chrome open, each of a bounded size.

What is recorded is every operation with its times, under the phase and the step that it belongs to. The numbers of the
run stay the same; the rounds that are recorded take longer and more memory. Workers are processes of their own, and are
not seen.

A recorder of torch's grows with each operation, and only tells how many there were when it has ended. So the first step
of a phase has a trace of its own; by its operations a second one takes as many of the next steps as fit. Later steps
may have more, as where learning begins: so the heap is asked as well, how much the recorder has taken.
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

from flatwater.memory.planner import Plan, refuse
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
"""Most rounds recorded of one run: the traces of each are some megabytes, and the rounds are slow."""
MAXIMUM_OPERATIONS = 100_000
"""Most operations in one trace; a single step is recorded whole even if it has more."""
OPERATION_BYTES = 1_800
"""RAM per operation while a trace is written; 1,665 bytes were measured."""
RECORDED_BYTES = 220
"""RAM per operation while it is recorded: 230 to 256 were measured."""
TRACE_BYTES = MAXIMUM_OPERATIONS * OPERATION_BYTES
OWNER = "profile.trace"
BLOCK_BYTES = 1 << 20
"""Bytes of a trace that are compressed at once."""
OPERATION = b'"ph": "X"'
"""Text in a trace that marks an operation with a beginning and an end."""
_FORM = re.compile(r"rounds=(\d{1,12})(?:-(\d{1,12}))?")


def profiled_rounds(text: str) -> range:
    """Return the rounds of `rounds=3` or `rounds=3-5`.

    Raises:
        ConfigError: the text has another form, or stands for no rounds, or for too many.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ConfigError(f"--profile {short_repr(text)}: expected rounds=N or rounds=FIRST-LAST, such as rounds=3")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last < first + MAXIMUM_ROUNDS:
        raise ConfigError(
            f"--profile {short_repr(text)}: expected 1 to {MAXIMUM_ROUNDS} rounds, counted from 1, "
            "LAST not before FIRST"
        )
    return range(first, last + 1)


def check_profiled(rounds: range, done: int, rounds_in_all: int) -> None:
    """Refuse rounds that the run does not come to.

    Raises:
        ConfigError: a round is over already, or beyond the last round.
    """
    if rounds[0] <= done or rounds[-1] > rounds_in_all:
        option = f"rounds={rounds[0]}" if len(rounds) == 1 else f"rounds={rounds[0]}-{rounds[-1]}"
        expected = f"expected rounds within {done + 1} to {rounds_in_all}, which are not trained yet"
        none_left = "all rounds of the run are trained. Add rounds with --rounds N"
        raise ConfigError(f"--profile {option}: {expected if done < rounds_in_all else none_left}")


def with_traces(composed: Run, rounds: range | None) -> Run:
    """Return the run, its plan with the memory that recording these rounds takes in this process; None records none.

    Raises:
        MemoryLimitError: that does not fit.
    """
    if rounds is None or composed.device.type != "cpu":  # on a GPU the plan is of the GPU's memory
        return composed
    plan = replace(composed.plan, owners={**composed.plan.owners, OWNER: TRACE_BYTES})
    if not composed.config.start_over_budget:
        refuse(plan if plan.fits else _with_advice(plan))
    return replace(composed, plan=plan)


def _with_advice(plan: Plan) -> Plan:
    return replace(plan, suggestions=(*plan.suggestions, f"without --profile: {format_bytes(TRACE_BYTES)} less"))


@dataclass
class Profiler:
    """Records the rounds that are wanted, in one or two traces of each phase."""

    rounds: range
    folder: Path
    """Where the traces go; made when the first is written."""
    device: torch.device
    trainer: Trainer[Any, Any]
    """Knows which step comes next."""
    voice: RunEvents
    _recording: profile | None = field(default=None, init=False)
    _step: record_function | None = field(default=None, init=False)
    _round: int = field(default=0, init=False)
    _phase: str = field(default="", init=False)
    """Phase of the trace, or of the trace before."""
    _first: int = field(default=0, init=False)
    """First step of the trace."""
    _step_limit: int = field(default=0, init=False)
    """Number of steps that the trace may have; 0 for the first trace of a phase, which has a single step."""
    _done: int = field(default=0, init=False)
    """Steps in the trace that are complete."""
    _heap: int = field(default=0, init=False)
    """Bytes in use when the trace began."""
    _large: set[str] = field(default_factory=set, init=False)
    """Phases of which a single step has more operations than are planned."""

    def announce_recording(self) -> None:
        """Print the rounds that are recorded, the size of their traces, and the folder."""
        rounds = f"round {self.rounds[0]}" if len(self.rounds) == 1 else f"rounds {self.rounds[0]} to {self.rounds[-1]}"
        self.voice.show_line(
            f"records {rounds}: traces of one step of each phase, and of the next steps up to {MAXIMUM_OPERATIONS:,} "
            f"operations, which take up to {format_bytes(TRACE_BYTES)}, to profile/ in the run folder",
            style="",
        )

    def begin_(self, round_: int) -> None:
        """Record the round that begins, if it is wanted."""
        self._round, self._phase = round_, ""
        if round_ in self.rounds and (next_step := self._next()):
            self._start(*next_step, step_limit=0)

    def after_step(self) -> None:
        """Continue the trace with the next step, or write it, when a step is complete."""
        if self._round not in self.rounds:
            return
        next_step = self._next()
        step_limit = 0
        same_phase = next_step is not None and next_step[0] == self._phase
        if self._recording is not None:
            self._done += 1
            # The operations of a step may grow, so the heap is asked as well: it holds what the recorder has taken.
            is_full = _bytes_in_use() - self._heap >= MAXIMUM_OPERATIONS * RECORDED_BYTES
            if next_step is not None and same_phase and self._done < self._step_limit and not is_full:
                self._mark_(f"{next_step[0]} {next_step[1]}")
                return
            operations = self._write()
            # A first trace tells the operations of one step:
            # from them follows how many steps fit into the second trace.
            step_limit = 0 if self._step_limit else MAXIMUM_OPERATIONS // max(1, operations)
            if operations > MAXIMUM_OPERATIONS and self._done == 1:
                self._large.add(self._phase)
                sentence = (
                    f"a step of {self._phase} has more operations than {MAXIMUM_OPERATIONS:,}, the most in a trace"
                )
                self.voice.show_line(f"{sentence}: no other step of this phase is recorded")
            # `_write` empties `rounds` where the disk is full:
            # then nothing more is said of steps that are not recorded.
            elif same_phase and not step_limit and self._round in self.rounds:
                self.voice.show_line(
                    f"the other steps of {self._phase} in round {self._round} are not recorded", style=""
                )
        if next_step is not None and self._round in self.rounds and (step_limit or not same_phase):
            self._start(*next_step, step_limit=step_limit if same_phase else 0)

    def after_round_(self, round_: int) -> None:
        """A round is complete and saved: the next round begins."""
        self.begin_(round_ + 1)

    def close(self) -> None:
        """Write the recording, with the completed part of a step that was stopped within."""
        if self._recording is not None:
            self._write()

    def _next(self) -> tuple[str, int] | None:
        """Phase and number of the step that comes next, from 1; None after the last of a round."""
        progress, phases = self.trainer.progress, self.trainer.phases
        done_steps = {progress.phase: progress.step}
        unfinished = (n for n in range(progress.phase, len(phases)) if done_steps.get(n, 0) < phases[n].steps())
        return next(((phases[n].name, done_steps.get(n, 0) + 1) for n in unfinished), None)

    def _start(self, phase: str, first: int, *, step_limit: int) -> None:
        """Begin a recording with a step; `step_limit` steps fit in, or 0 if this is the first of a phase."""
        self._phase, self._first, self._step_limit, self._done = phase, first, step_limit, 0
        if phase in self._large:
            return
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its library prints to stderr when it starts and stops
        # The parts of torch.profiler.profile, which itself imports torch's compiler, 74 MB, for a setting of its
        # graphs.
        device = "cuda" if self.device.type == "cuda" else None
        self._recording = profile(use_kineto=True, use_device=device)
        self._recording.__enter__()  # type: ignore[no-untyped-call]  # torch's own has no types
        self._heap = _bytes_in_use()
        self._mark_(f"{phase} {first}")

    def _write(self) -> int:
        """End the recording and write it. Returns its operations; where it cannot be written, no more is recorded."""
        # Taken first, so that `close` does not write it again after a fault.
        recording, self._recording = self._recording, None
        assert recording is not None  # noqa: S101  (asked by who calls)
        self._mark_("")
        recording.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        last_step = self._first + max(0, self._done - 1)
        steps = f"{self._phase}-{self._first}" + (f"-{last_step}" if last_step > self._first else "")
        path = self.folder / f"round-{self._round:06}-{steps}.json.gz"
        try:
            self.folder.mkdir(exist_ok=True)
            operations = _export(recording, path)
            size = path.stat().st_size
        except (OSError, RuntimeError) as error:
            self.rounds = range(0)
            reason = f"the trace of round {self._round} cannot be written ({error})"
            self.voice.show_line(f"{reason}. Recording ends, and the run goes on")
            return 0
        sentence = f"a trace is in profile/{path.name}, {operations:,} operations, {format_bytes(size)}"
        self.voice.show_line(f"{sentence}: open it at https://ui.perfetto.dev", style="")
        # Before the heap is trimmed: the recording holds hundreds of bytes for each operation.
        del recording
        release_freed_memory()
        return operations

    def _mark_(self, name: str) -> None:
        """End the step that is recorded, and begin another; an empty name begins none."""
        if self._step is not None:
            self._step.__exit__(None, None, None)
        self._step = record_function(name) if name else None
        if self._step is not None:
            self._step.__enter__()  # type: ignore[no-untyped-call]  # torch's own has no types


def _bytes_in_use() -> int:
    """Return the bytes in use on the heap; those of the whole process where no allocator answers."""
    totals = allocator_totals()
    return resident_bytes() if totals is None else totals.in_use


def _export(recording: profile, path: Path) -> int:
    """Write a trace, compressed. Returns the operations in it.

    Torch compresses line by line, as tightly as can be: 40 µs an operation, of which this takes 5.

    Raises:
        OSError: the trace cannot be written.
    """
    operations, block = 0, b""
    with TemporaryDirectory(dir=path.parent, prefix=".") as temporary:  # nobody else puts a link there
        raw_file, packed_file = Path(temporary, "trace.json"), Path(temporary, "trace.json.gz")
        recording.export_chrome_trace(str(raw_file))  # type: ignore[no-untyped-call]  # torch's own has no types
        blocks = -(-raw_file.stat().st_size // BLOCK_BYTES)
        with raw_file.open("rb") as source, gzip.open(packed_file, "wb", compresslevel=6) as target:
            for _ in count_steps("MiB of a trace", range(blocks)):
                block = source.read(BLOCK_BYTES)
                operations += block.count(OPERATION)
                target.write(block)
        if not block.rstrip().endswith(b"}"):
            raise OSError("the file is incomplete: the disk may be full")  # torch says nothing of that
        os.replace(packed_file, path)  # noqa: PTH105  (both lead through the descriptor of the folder)
    return operations
