"""`flatwater plan RECIPE`."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from flatwater.cli.settings import OverRecipe


@dataclass(frozen=True, kw_only=True)
class Plan(OverRecipe):
    """What planning for any recipe is given besides its settings."""

    about: ClassVar[str] = "Tell what a run of `flatwater train {name}` with these options would hold, by owner."
    help_more: ClassVar[str] = """
        The state's bytes are exact: they come from the run's own build on a device without memory. Transients are
        estimated from the tensors of each phase, tried out there as well; simulators of other libraries are not
        counted. Nothing is started. Exits with 3 where the run does not fit, with
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
