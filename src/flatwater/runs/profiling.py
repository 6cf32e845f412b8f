"""torch's profiler over whole rounds: a trace a round, which Perfetto and Chrome open.

What is recorded is every operation with its times, under the phase and the step that it belongs to. The numbers of the
run stay the same; the rounds that are recorded take longer and more memory. Workers are processes of their own, and are
not seen.
"""

import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from flatwater.errors import ConfigError
from flatwater.printable import shown
from flatwater.rundir.events import Voice
from flatwater.trainers.loop import Trainer
from flatwater.units import format_bytes

MOST_ROUNDS = 100
"""Traces of one run: each is some megabytes, and the rounds are slow."""
_FORM = re.compile(r"rounds=(\d{1,12})(?:-(\d{1,12}))?")


def profiled_rounds(wanted: str) -> range:
    """The rounds of `rounds=3` or `rounds=3-5`.

    Raises:
        ConfigError: it has another form, or there are none, or too many.
    """
    found = _FORM.fullmatch(wanted)
    if found is None:
        raise ConfigError(f"--profile {shown(wanted)}: must be rounds=N or rounds=FIRST-LAST, such as rounds=3")
    first, last = int(found[1]), int(found[2] or found[1])
    if not 1 <= first <= last < first + MOST_ROUNDS:
        raise ConfigError(
            f"--profile {shown(wanted)}: must be 1 to {MOST_ROUNDS} rounds, counted from 1, the first one first"
        )
    return range(first, last + 1)


def check_profiled(rounds: range, done: int, wanted: int) -> None:
    """That the run comes to these rounds.

    Raises:
        ConfigError: it does not.
    """
    if rounds[0] <= done or rounds[-1] > wanted:
        given = f"rounds={rounds[0]}" if len(rounds) == 1 else f"rounds={rounds[0]}-{rounds[-1]}"
        come = f"must be within {done + 1} to {wanted}, the rounds that are still to come"
        over = "the run has no rounds to come. Ask for more with --rounds N"
        raise ConfigError(f"--profile {given}: {come if done < wanted else over}")


@dataclass
class Profiler:
    """Records the rounds that are wanted, one trace each."""

    rounds: range
    folder: Path
    """Where the traces go; made when the first is written."""
    device: torch.device
    trainer: Trainer
    """Knows which step comes next."""
    voice: Voice
    _recording: profile | None = field(default=None, init=False)
    _step: record_function | None = field(default=None, init=False)
    _round: int = field(default=0, init=False)

    def begin_(self, round_: int) -> None:
        """A round begins: record it, if it is wanted."""
        self._round = round_
        if round_ not in self.rounds:
            return
        activities = [ProfilerActivity.CPU]
        if self.device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its library prints to stderr when it starts and stops
        self._recording = profile(activities=activities, acc_events=True)
        self._recording.start()
        self._mark_(self._next())

    def stepped(self) -> None:
        """A step is complete: what comes next is recorded under the next one's name."""
        if self._recording is not None:
            self._mark_(self._next())

    def _next(self) -> str:
        """Phase and number of the step that comes next; after the last of a round it is settled."""
        at, phases = self.trainer.progress, self.trainer.phases
        steps = {at.phase: at.step}
        found = (n for n in range(at.phase, len(phases)) if steps.get(n, 0) < phases[n].steps())
        return next((f"{phases[n].name} {steps.get(n, 0) + 1}" for n in found), "settle")

    def settled_(self, round_: int) -> None:
        """A round is complete and saved: write its trace, and begin with the next."""
        self.close()
        self.begin_(round_ + 1)

    def close(self) -> None:
        """Write what was recorded; of a round that was stopped within, its part."""
        recording, self._recording = self._recording, None
        if recording is None:
            return
        self._mark_("")
        recording.stop()
        path = self.folder / f"round-{self._round:06}.json.gz"
        part = self.folder / f".{path.name}.{secrets.token_hex(4)}.tmp.gz"  # torch follows a link that is there
        try:
            self.folder.mkdir(exist_ok=True)
            recording.export_chrome_trace(str(part))
            os.replace(part, path)  # noqa: PTH105  (both lead through the descriptor of the folder)
            size = path.stat().st_size
        except (OSError, RuntimeError) as fault:
            self.voice.say(f"the trace of round {self._round} cannot be written ({fault}); the run goes on")
            return
        said = f"a trace of round {self._round} is in profile/{path.name}, {format_bytes(size)}"
        self.voice.say(f"{said}: open it at https://ui.perfetto.dev", style="")

    def _mark_(self, name: str) -> None:
        """End the step that is recorded, and begin another; an empty name begins none."""
        if self._step is not None:
            self._step.__exit__(None, None, None)
        self._step = record_function(name) if name else None
        if self._step is not None:
            self._step.__enter__()  # type: ignore[no-untyped-call]  # torch's own has no types
