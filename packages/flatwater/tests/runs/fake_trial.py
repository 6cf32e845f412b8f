"""Trains nothing, in milliseconds: speaks as a trial's process does and leaves the numbers of a run.

The value of a round is the setting `learner.ddpg.noise` plus the round: trials are ordered by that setting alone. A
trial with a large `net.hidden` does not fit. In the round that the file HOLD names it says so in the file HELD, and
waits until the file GO is there.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

HOLD, HELD = Path("hold"), Path("held")
stopped, asked = [], []


def main() -> dict[str, object]:
    order = json.load(sys.stdin)
    if order["run"] is None:
        return {"config": order["config"]}
    config, run = order["config"], Path(order["run"])
    with Path("started").open("a") as file:
        file.write(f"{run.name}\n")
    if config["net"]["hidden"] > 512:
        return {"error": "The run would take 9.0 GiB, and 8.0 GiB are allowed.", "exit_code": 3}
    if config["net"]["hidden"] > 256:
        os.kill(os.getpid(), signal.SIGKILL)
    run.mkdir(exist_ok=True)
    (run / "order.json").write_text(json.dumps(config))
    metrics = run / "metrics.jsonl"
    done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
    for n in range(done + 1, config["rounds"] + 1):
        with metrics.open("a") as file:
            file.write(json.dumps({"round": n, "validation/champion": config["learner"]["ddpg"]["noise"] + n}) + "\n")
        if HOLD.exists() and n == int(HOLD.read_text()):
            HELD.touch()
            while not (stopped or Path("go").exists()) and os.getppid() == order["parent"]:
                time.sleep(0.01)
                if asked:
                    Path("saved").touch()
        if stopped or os.getppid() != order["parent"]:
            return {"finished": False, "exit_code": 143}
    return {"finished": True, "exit_code": 0}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    signal.signal(signal.SIGUSR2, lambda number, _: asked.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
    sys.stdout.write(json.dumps(main()))
