"""What must hold before a run of any kind is planned, trained or tried in a sweep: the same for all three."""

from dataclasses import dataclass
from typing import Any

from flatwater.memory.planner import Plan
from flatwater.mirror.opening import names_at
from flatwater.recipe import find_recipe
from flatwater.runs.event_command import check_command
from flatwater.runs.trackers import check_trackers


@dataclass(frozen=True)
class Checked:
    """A configuration that a run can start with."""

    config: Any
    """A RunConfig of any kind, as it is kept."""
    taken: frozenset[str]
    """Names of the runs that lie below its mirror's URL."""


def check_settings(config: Any) -> Checked:  # noqa: ANN401  (a RunConfig of any kind)
    """Look over what is asked of this machine and of others; data and memory are looked at where the run is planned.

    Raises:
        ConfigError: a tracker is not installed, --on-event names no program, or the mirror's URL is none or refuses.
    """
    check_trackers(config)
    check_command(config.on_event)
    return Checked(find_recipe(config.trainer).prepare(config), names_at(config.mirror))


def checked_plan(config: Any) -> tuple[Checked, Plan]:  # noqa: ANN401  (same)
    """The same, and what a run would hold; nothing is allocated.

    Raises:
        FlatwaterError: no run could start with it. That it does not fit into memory is for the caller to say.
    """
    checked = check_settings(config)
    return checked, find_recipe(config.trainer).plan(checked.config)
