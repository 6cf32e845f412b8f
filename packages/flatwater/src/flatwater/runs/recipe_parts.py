"""When a run writes the parts that its page has of a recipe of somebody else's, so that readers need not import it.

Readers see them as they were when the run last wrote them, which takes at most a fiftieth of its time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from flatwater.border import own_place
from flatwater.recipe import SECTIONS, Recipe, lazy_function, recipe_names
from flatwater.rundir.layout import RunFolder

SECONDS = 60.0
"""Between two times at least."""
SHARE = 50.0
"""The pause is so many times what writing took."""
write_parts = lazy_function("flatwater.reports.recipe_parts:write_parts")
"""Pages stand above runs, and are imported by those alone that have such parts."""


@dataclass
class RecipeParts:
    """One for each process that trains a run."""

    recipe: Recipe
    folder: RunFolder
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    due: float = 0.0
    """When they are next written."""
    fault: str = ""
    """What was said last of parts that cannot be made."""

    @property
    def has_parts(self) -> bool:
        """Whether there is anything to write: readers find installed recipes themselves, and some have no parts."""
        return self.recipe.name not in recipe_names() and self.recipe.sections is not SECTIONS

    def write_when_due_(self) -> None:
        """Write them where that is due, after a round."""
        if self.has_parts and self.clock() >= self.due:
            self.write_()

    def write_(self) -> None:
        """Write them now. What the recipe's code raises is told, and the run goes on: only a page lacks something."""
        if not self.has_parts:
            return
        began = self.clock()
        try:
            write_parts(self.folder, self.recipe)
        except Exception as fault:  # noqa: BLE001  (the edge to code that only draws: no run ends by it)
            place = own_place(fault)
            where = "" if place is None else f" ({place.file}, line {place.line})"
            said = f"the parts of the page cannot be written: {type(fault).__name__}: {fault}{where}"
            if said != self.fault:
                self.say(f"{said}. The run goes on; mend `sections` of {self.recipe.name}")
            self.fault = said
        ended = self.clock()
        self.due = ended + max(SECONDS, SHARE * (ended - began))
