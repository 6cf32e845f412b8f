"""Frames that are pushed through a socket with a bound, whose sender waits for its receiver."""

import sys
import threading
import time

import zmq


def receive(context: zmq.Context, address: str) -> None:
    receiver = context.socket(zmq.PULL)
    receiver.set_hwm(5)
    receiver.connect(address)
    while True:
        receiver.recv()
        time.sleep(0.02)


def main(rounds: int) -> None:
    context = zmq.Context()
    sender = context.socket(zmq.PUSH)
    sender.set_hwm(5)
    sender.setsockopt(zmq.LINGER, 0)
    port = sender.bind_to_random_port("tcp://127.0.0.1")
    threading.Thread(target=receive, args=(context, f"tcp://127.0.0.1:{port}"), daemon=True).start()
    for n in range(rounds):
        for _ in range(8):
            sender.send(bytes([n % 256]) * 200_000)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
