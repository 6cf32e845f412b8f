"""A worker's process: it answers the questions of `worker_client.Worker` until its socket is closed.

python -P -m flatwater.cluster.worker DESCRIPTOR [FOLDER WITH THE USER'S MODULES]
"""

import gc
import pickle
import resource
import signal
import socket
import sys
import traceback
from contextlib import suppress

from flatwater.cluster.pipe import Pipe
from flatwater.named_imports import import_object
from flatwater_watch.meters.proc import read_kib_counters

SIGNALS_LEFT_TO_RUN = (
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals that a terminal or a scheduler sends to all processes; a worker ignores them, and ends when its run does."""
FAILED, NO_MEMORY = "failed", "no memory"
"""Kinds of answers that are not a result; the kind of a result is "done"."""
SPARE_BYTES = 32 << 20
"""Bytes for the stacks of threads that start later, which reserve them and do not use them."""


def limit_memory(budget: int) -> None:
    """Make allocations fail from now on that would bring the private bytes of this process above `budget`."""
    counters = read_kib_counters("/proc/self/status")
    _soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    # The system limits reserved bytes (VmData), and the budget is for bytes in RAM (RssAnon), which are fewer.
    limit = counters["VmData"] + max(0, budget - counters["RssAnon"]) + SPARE_BYTES
    soft_limit = limit if hard_limit == resource.RLIM_INFINITY else min(limit, hard_limit)
    resource.setrlimit(resource.RLIMIT_DATA, (soft_limit, hard_limit))


def is_out_of_memory(error: Exception) -> bool:
    """Return whether the system refused memory, for which torch raises a RuntimeError with this text."""
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


class WorkerSession:
    """Answers of a worker: the first question makes an object, whose methods answer all later questions."""

    def __init__(self) -> None:
        """Handle SIGTERM, which announces the end of a machine: the next answer tells the run of it."""
        self._service: object = None
        self._is_leaving = False
        signal.signal(signal.SIGTERM, self._leave_)

    def _leave_(self, *_: object) -> None:
        self._is_leaving = True  # In a signal handler: the current answer is finished first.

    def answer_message(self, message: bytes | bytearray) -> bytes:
        """Answer a question: a pickled pair of a method's name and its arguments.

        Returns:
            The pickled kind of the answer, its result or traceback, and whether the process must leave its machine.
        """
        name, arguments = pickle.loads(message)  # noqa: S301  (from the run that this worker belongs to)
        try:
            if name == "__init__":
                target, service_arguments, budget = arguments
                make = import_object(target)
                # After the import, as the memory that libraries reserve does not count.
                if budget is not None:
                    limit_memory(budget)
                self._service = make(service_arguments)
                result = None
                gc.collect()
                gc.freeze()  # makes later collections cheap: the collector skips the objects that exist now
            else:
                result = getattr(self._service, name)(*arguments)
            return self._pickle_answer("done", result)
        # As text: the run may lack the class of the exception.
        except Exception as error:  # noqa: BLE001  (the edge of the worker: the run says what went wrong, and ends)
            return self._pickle_answer(NO_MEMORY if is_out_of_memory(error) else FAILED, traceback.format_exc())

    def _pickle_answer(self, kind: str, answer: object) -> bytes:
        return pickle.dumps((kind, answer, self._is_leaving), protocol=pickle.HIGHEST_PROTOCOL)


def serve_requests(pipe: Pipe) -> None:
    """Answer one question after the other, until the run closes its end."""
    session = WorkerSession()
    with suppress(EOFError, OSError):  # the run has closed its end, or has died
        while True:
            pipe.send(session.answer_message(pipe.receive()))


if __name__ == "__main__":
    for number in SIGNALS_LEFT_TO_RUN:
        signal.signal(number, signal.SIG_IGN)
    sys.path += sys.argv[2:]  # at the end, so that no file of the user's takes the place of a library
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)  # a program that an environment starts would keep it open, perhaps longer than we live
    serve_requests(Pipe(end))
