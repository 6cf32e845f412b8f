"""The other end of `processes.Worker`: answers questions until nobody is left to ask.

python -m flatwater.cluster.worker DESCRIPTOR
"""

import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection

from flatwater.imported import import_object

LEFT_TO_THE_RUN = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals that a terminal or a scheduler sends to all processes: the run decides what comes of them, and its end is
the worker's."""


def serve(pipe: Connection) -> None:
    """Answer one question after the other."""
    desk: object = None
    while True:
        try:
            name, given = pickle.loads(pipe.recv_bytes())  # noqa: S301  (from the process that started this one)
        except (EOFError, OSError):
            return
        try:
            if name == "__init__":
                target, made_of = given
                desk, answer = import_object(target)(made_of), None
            else:
                answer = getattr(desk, name)(*given)
            said = ("done", answer)
        except Exception:  # noqa: BLE001  (the edge of the process: the run says what went wrong, and ends)
            said = ("failed", traceback.format_exc())
        try:
            pipe.send_bytes(pickle.dumps(said, protocol=pickle.HIGHEST_PROTOCOL))
        except OSError:
            return


if __name__ == "__main__":
    for number in LEFT_TO_THE_RUN:
        signal.signal(number, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])))
