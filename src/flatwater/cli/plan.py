"""`flatwater plan erl`, `flatwater plan grow` and `flatwater plan teach`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from flatwater.cli.settings import OverFile
from flatwater.runs.erl.config import ErlRunConfig
from flatwater.runs.grow.config import GrowRunConfig
from flatwater.runs.teach.config import TeachRunConfig


@dataclass(frozen=True, kw_only=True)
class Plan(OverFile):
    """What planning of all kinds is given besides the run's settings."""

    help_more: ClassVar[str] = """
        The state's bytes are exact: they come from the run's own build on a device without memory. Transients are
        estimated from the tensors of each phase, tried out there as well. Exits with 3 where the run does not fit, with
        what to change.
        """
    config: Path | None = None
    """TOML file with settings, such as a run folder's config.toml. Options on the command line win over it."""
    json: bool = False
    """Print the plan as JSON: what a run writes to plan.json."""

    def __call__(self) -> int:
        """Plan and print."""
        from flatwater.terminal import terminal

        settings = self.settings()
        with terminal(errors=True).status("building the run on a device without memory, and trying its phases out …"):
            from flatwater.cli.plan_table import print_plan  # reading torch is half of the time
            from flatwater.runs.checking import checked_plan

            _, plan = checked_plan(settings)
        return print_plan(plan, as_json=self.json)


@dataclass(frozen=True, kw_only=True)
class PlanErl(Plan, ErlRunConfig):
    """Tell what a run of `flatwater train erl` with these options would hold, by owner, and start nothing."""

    kind: ClassVar[type[Any]] = ErlRunConfig


@dataclass(frozen=True, kw_only=True)
class PlanGrow(Plan, GrowRunConfig):
    """Tell what a run of `flatwater train grow` with these options would hold, by owner, and start nothing."""

    kind: ClassVar[type[Any]] = GrowRunConfig


@dataclass(frozen=True, kw_only=True)
class PlanTeach(Plan, TeachRunConfig):
    """Tell what a run of `flatwater train teach` with these options would hold, by owner, and start nothing.

    Simulators are not counted.
    """

    kind: ClassVar[type[Any]] = TeachRunConfig
