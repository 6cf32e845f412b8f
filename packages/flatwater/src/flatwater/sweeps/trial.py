"""One trial of a sweep, in a process of its own: all memory of the run is free when the process ends.

It reads an order from stdin and answers on stdout, both JSON; what the run prints goes to stderr. The order has
`config`, the configuration; `run`, its folder, or null where the configuration is only to be checked; `trust`, whether
the user trusts the code that folders name; and `parent`, the process that asks. When that process dies, however it
dies, the trial saves a checkpoint and ends.
"""

import ctypes
import json
import os
import platform
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.named_imports import GIVEN_PERMIT, trust_code
from flatwater.recipe import find_recipe
from flatwater.runs.session import resume, start_new_run
from flatwater.runs.settings_checks import check_and_plan
from flatwater_watch.errors import FlatwaterError
from flatwater_watch.streams import surviving_stream
from flatwater_watch.terminal import WIDTH, Terminal

_PDEATHSIG = 1
"""Number of prctl's option (sys/prctl.h)."""


def main() -> None:
    """Train the run that stdin describes, or only check its configuration if it has no folder."""
    answer_order_(
        lambda order: train(order["config"], Path(order["run"])) if order["run"] else prepare(order["config"])
    )


def answer_order_(execute: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Read the order from stdin, execute it, and write its result, or a `FlatwaterError`, to stdout as JSON."""
    order = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as answer:
        # Descriptor 1 becomes stderr, so that what a library prints does not stand in the answer.
        os.dup2(2, 1)
        # Before the order is executed: from here on this process ends when its parent dies.
        end_with_parent(order["parent"])
        try:
            with trust_code(order.get("trust", False)):
                outcome = execute(order)
        except FlatwaterError as error:
            outcome = {"error": str(error), "exit_code": error.exit_code}
        json.dump(outcome, answer)


def end_with_parent(parent: int) -> None:
    """Let the kernel send SIGTERM to this process when its parent dies, even by SIGKILL; on Linux alone."""
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before the call
            os.kill(os.getpid(), signal.SIGTERM)


def prepare(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration as a run stores it, after a check against data and machine, but not against memory."""
    # Names in the settings may be imported: the sweep has checked that the user gave or trusts them.
    config_class = find_recipe(settings["trainer"], GIVEN_PERMIT).config
    config = from_mapping(config_class, settings, "the sweep")
    checked_config, _plan = check_and_plan(config)
    return {"config": to_mapping(checked_config.config)}


def train(settings: Mapping[str, Any], run: Path) -> dict[str, Any]:
    """Start the run, or resume it if it has begun; return whether it finished, and its exit code."""
    # A stream that drops lines once stderr is closed, so that the trial goes on without a reader.
    console = Terminal(file=surviving_stream(sys.stderr), width=WIDTH)
    if (run / "config.toml").is_file():  # written when the run began
        outcome = resume(run, console)
    else:
        config_class = find_recipe(settings["trainer"], GIVEN_PERMIT).config
        config = from_mapping(config_class, settings, "the trial")
        outcome = start_new_run(config, run, console)
    return {"finished": outcome.finished, "exit_code": outcome.exit_code}


if __name__ == "__main__":
    main()
