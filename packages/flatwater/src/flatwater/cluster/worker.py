"""A worker's process, the other end of `worker_client.Worker`: it answers questions until its socket is closed.

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
"""Signals that a terminal or a scheduler sends to all processes: the run decides what comes of them, and a worker
ends with its run."""


FAILED, NO_MEMORY = "failed", "no memory"
SPARE_BYTES = 32 << 20
"""Bytes that threads which start later reserve and do not use: their stacks."""


def bound_memory(budget: int) -> None:
    """Let requests fail from here on that would bring this process above a limit of private bytes.

    The limit is on what is reserved (RLIMIT_DATA), of which less is in RAM: the difference of this moment is granted.
    """
    counters, (_, hard) = read_kib_counters("/proc/self/status"), resource.getrlimit(resource.RLIMIT_DATA)
    limit = counters["VmData"] + max(0, budget - counters["RssAnon"]) + SPARE_BYTES
    soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def refused_memory(fault: Exception) -> bool:
    """Whether the system refused memory: torch has no error of its own for that."""
    return isinstance(fault, MemoryError) or "allocate memory" in str(fault)


class WorkerSession:
    """Answers of a worker: the first question makes an object, whose methods answer all others."""

    def __init__(self) -> None:
        """Make no object yet. SIGTERM, the notice of a machine that is taken away, goes out with the next answer."""
        self._service: object = None
        self._is_leaving = False
        signal.signal(signal.SIGTERM, self._leave_)

    def _leave_(self, *_: object) -> None:
        self._is_leaving = True  # in a signal handler: the answer in work is finished first

    def answer_message(self, message: bytes | bytearray) -> bytes:
        """Answer one question: its result or fault, and whether this process leaves."""
        name, arguments = pickle.loads(message)  # noqa: S301  (from the run that this worker belongs to)
        try:
            if name == "__init__":
                target, made_of, budget = arguments
                make = import_object(target)
                # After the imports: what they reserve is granted, what the worker computes is bounded.
                if budget is not None:
                    bound_memory(budget)
                self._service, result = make(made_of), None
                gc.collect()
                gc.freeze()  # what is alive now is out of the collector's sight: later collections are cheap
            else:
                result = getattr(self._service, name)(*arguments)
            return self._pickle_answer("done", result)
        # As text: the run may lack the class of the exception.
        except Exception as error:  # noqa: BLE001  (the edge of the worker: the run says what went wrong, and ends)
            return self._pickle_answer(NO_MEMORY if refused_memory(error) else FAILED, traceback.format_exc())

    def _pickle_answer(self, kind: str, answer: object) -> bytes:
        return pickle.dumps((kind, answer, self._is_leaving), protocol=pickle.HIGHEST_PROTOCOL)


def serve_requests(pipe: Pipe) -> None:
    """Answer one question after the other, until the run closes its end."""
    answers = WorkerSession()
    with suppress(EOFError, OSError):  # nobody is left
        while True:
            pipe.send(answers.answer_message(pipe.receive()))


if __name__ == "__main__":
    for number in SIGNALS_LEFT_TO_RUN:
        signal.signal(number, signal.SIG_IGN)
    sys.path += sys.argv[2:]  # behind the libraries, so that no file of the user's stands in for one of them
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)  # else a program that an environment starts has it open too, and lives longer
    serve_requests(Pipe(end))
