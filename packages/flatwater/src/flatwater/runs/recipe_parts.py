"""Writes the parts of a run's page that a recipe outside of this package draws, so that readers need not import it.

The parts are written again from time to time while the run trains, in at most a fiftieth of the run's time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from flatwater.recipe import SECTIONS, Recipe, lazy_function, recipe_names
from flatwater.rundir.layout import RunFolder
from flatwater.user_code import user_code_line
from flatwater_watch.events.background import ShowLine

MINIMUM_GAP_SECONDS = 60.0
"""Fewest seconds between two writings."""
PAUSE_FACTOR = 50.0
"""Factor from the time that writing took to the pause after it."""
write_parts = lazy_function("flatwater.reports.recipe_parts:write_parts")
"""Imported when it is first called: the layer of pages lies above the layer of runs, and most runs need it never."""


@dataclass
class RecipeParts:
    """Writes the recipe's parts of a run's page; one for each process that trains a run."""

    recipe: Recipe
    folder: RunFolder
    say: ShowLine
    clock: Callable[[], float] = time.monotonic
    due_time: float = 0.0
    """Earliest time of the next writing, in seconds of `clock`."""
    last_problem: str = ""
    """Last message about parts that could not be written; the same message is not shown twice in a row."""

    @property
    def has_parts(self) -> bool:
        """Whether the recipe draws parts of its own that readers cannot draw: they import installed recipes alone."""
        return self.recipe.name not in recipe_names() and self.recipe.sections is not SECTIONS

    def write_when_due_(self) -> None:
        """Write the parts if the pause since the last writing is over."""
        if self.has_parts and self.clock() >= self.due_time:
            self.write_()

    def write_(self) -> None:
        """Write the recipe's parts, if it has any; an exception of its code is shown, and the run goes on."""
        if not self.has_parts:
            return
        began = self.clock()
        try:
            write_parts(self.folder, self.recipe)
        except Exception as error:  # noqa: BLE001  (the user's code, which only draws: no run ends by it)
            place = user_code_line(error)
            place_text = "" if place is None else f" ({place.file}, line {place.line})"
            sentence = f"the parts of the page cannot be written: {type(error).__name__}: {error}{place_text}"
            if sentence != self.last_problem:
                self.say(f"{sentence}. The run goes on. Correct `sections` of {self.recipe.name}")
            self.last_problem = sentence
        end = self.clock()
        # The pause begins at the end of the writing, so that slow writings never follow each other at once.
        self.due_time = end + max(MINIMUM_GAP_SECONDS, PAUSE_FACTOR * (end - began))
