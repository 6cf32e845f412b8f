"""Parts of a run's page that a recipe outside of this package makes, written so that readers need not import it.

Readers see the parts of the last writing, which takes at most a fiftieth of the run's time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from flatwater.border import user_code_line
from flatwater.recipe import SECTIONS, Recipe, lazy_function, recipe_names
from flatwater.rundir.layout import RunFolder

MINIMUM_GAP_SECONDS = 60.0
"""Seconds between two writings at least."""
PAUSE_FACTOR = 50.0
"""Factor from the time that writing took to the pause after it."""
write_parts = lazy_function("flatwater.reports.recipe_parts:write_parts")
"""Pages stand above runs, and are imported by those alone that have such parts."""


@dataclass
class RecipeParts:
    """Writes the page's parts of a recipe; one for each process that trains a run."""

    recipe: Recipe
    folder: RunFolder
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    due: float = 0.0
    """Time of the next writing, by `clock`."""
    fault: str = ""
    """Last message about parts that cannot be made."""

    @property
    def has_parts(self) -> bool:
        """Whether there are parts to write: readers find installed recipes themselves, and some have no parts."""
        return self.recipe.name not in recipe_names() and self.recipe.sections is not SECTIONS

    def write_when_due_(self) -> None:
        """Write the parts after a round where that is due."""
        if self.has_parts and self.clock() >= self.due:
            self.write_()

    def write_(self) -> None:
        """Write the parts now; the recipe's exceptions are told, and the run goes on: only a page lacks something."""
        if not self.has_parts:
            return
        began = self.clock()
        try:
            write_parts(self.folder, self.recipe)
        except Exception as error:  # noqa: BLE001  (the edge to code that only draws: no run ends by it)
            place = user_code_line(error)
            place_text = "" if place is None else f" ({place.file}, line {place.line})"
            sentence = f"the parts of the page cannot be written: {type(error).__name__}: {error}{place_text}"
            if sentence != self.fault:
                self.say(f"{sentence}. The run goes on. Correct `sections` of {self.recipe.name}")
            self.fault = sentence
        end = self.clock()  # from the end, so that slow parts never follow each other at once
        self.due = end + max(MINIMUM_GAP_SECONDS, PAUSE_FACTOR * (end - began))
