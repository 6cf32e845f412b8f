"""The numbers of each round as TensorBoard scalars, under the names that they have everywhere else.

Event files are written here and not by `SummaryWriter`: its thread prints a traceback when the disk is full, and the
run would learn of it rounds later.
"""

import errno
import os
import re
import socket
import time
from io import BytesIO
from math import isfinite
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

from flatwater.metrics.sinks import Metrics
from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import explain_os_errors

_NUMBER = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class TensorBoardSink:
    """Writes event files into a folder. TensorBoard shows what is not finite as a gap, so it is left out."""

    def __init__(self, folder: Path, *, resume_at: int = 0) -> None:
        """Open a new event file in the folder.

        Args:
            folder: made if it does not exist.
            resume_at: last round that the run remembers; older files' later rounds are hidden.
        """
        self.path = folder
        with explain_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            # TensorBoard reads the files of a folder in the order of their names: the newest must be the last one, also
            # where the clock was set back since the others were written.
            numbers = (int(match[1]) for path in folder.iterdir() if (match := _NUMBER.match(path.name)))
            file_number = max(time.time_ns(), max(numbers, default=0) + 1)
            self.path = folder / f"events.out.tfevents.{file_number:019d}.{socket.gethostname()}.{os.getpid()}"
            self._file = self.path.open("xb", buffering=0)
        try:
            self._append_(Event(file_version="brain.Event:2"))
            # Tells TensorBoard to hide what older files have from this step on.
            self._append_(Event(step=resume_at + 1, session_log=SessionLog(status=SessionLog.START)))
        except RunError:
            self._file.close()
            raise

    def write(self, round: int, metrics: Metrics) -> None:
        """Write the round's finite numbers.

        Raises:
            RunError: the disk is full or the file can no longer be written.
        """
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items() if isfinite(value)]
        self._append_(Event(step=round, summary=Summary(value=values)))

    def close(self) -> None:
        """Close the event file."""
        self._file.close()

    def _append_(self, event: Event) -> None:
        """Append one event, with the time of now, as a whole record of TensorBoard's event file.

        Raises:
            RunError: the disk is full, or the file cannot be written.
        """
        event.wall_time = time.time()
        record = BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        # One write for a whole record: a reader never sees half of one, unless the disk is full.
        with explain_os_errors(self.path), record.getbuffer() as whole:
            if self._file.write(whole) < record.tell():  # the disk took only a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
