"""Frames that are pushed through a socket to a receiver that is slower than the camera.

Thread: https://github.com/zeromq/pyzmq/issues/727
Looks like: the sender grows for as long as the receiver lags behind, and no Python object does.
Fix: `set_hwm(10)` before `bind` and `connect`, so that the sender waits.
"""

import sys
import threading
import time

import zmq


def receive(context: zmq.Context, address: str) -> None:
    receiver = context.socket(zmq.PULL)
    receiver.connect(address)
    while True:
        receiver.recv()
        time.sleep(1)


def main(rounds: int) -> None:
    context = zmq.Context()
    sender = context.socket(zmq.PUSH)
    sender.set_hwm(0)
    sender.setsockopt(zmq.LINGER, 0)
    port = sender.bind_to_random_port("tcp://127.0.0.1")
    threading.Thread(target=receive, args=(context, f"tcp://127.0.0.1:{port}"), daemon=True).start()
    frame = bytes(range(250)) * 160
    for _ in range(rounds):
        for _ in range(50):
            sender.send(frame)  # <- here
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
