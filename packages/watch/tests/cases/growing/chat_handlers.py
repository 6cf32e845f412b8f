"""A chat server: each conversation listens to the bus while it lasts, and after.

Thread: https://github.com/jfhbrook/pyee, and the kind of https://github.com/scality/cloudserver/pull/427
Looks like: the server keeps the history of every conversation that it ever had; a broadcast takes longer each day.
Cause: the handler is a closure over the history, and stays registered when its conversation is over.
Fix: `bus.remove_listener("broadcast", on_broadcast)` when the conversation ends.
"""

import random
import sys
import time

from pyee.base import EventEmitter

bus = EventEmitter()


def converse(customer):
    history = [{"role": "system", "text": "You are the clerk of a bank. " * 200}]

    def on_broadcast(text):
        if len(history) < 60:
            history.append({"role": "notice", "text": text})

    bus.on("broadcast", on_broadcast)
    for turn in range(30):
        asked = f"{customer} asks {turn}: " + "why? " * 600  # <- here
        history.append({"role": "user", "text": asked})
    bus.emit("broadcast", "the counter closes at six")
    return len(history)


def main(customers: int) -> None:
    messages = 0
    for customer in range(customers):
        messages = converse(f"customer-{customer}")
        time.sleep(random.uniform(0.04, 0.09))
    print("messages in the last conversation:", messages)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 240)
