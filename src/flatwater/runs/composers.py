"""How a run of each kind is composed."""

from collections.abc import Mapping

from flatwater.runs.composed import Composer
from flatwater.runs.erl.composition import COMPOSER as ERL
from flatwater.runs.grow.composition import COMPOSER as GROW
from flatwater.runs.teach.composition import COMPOSER as TEACH

COMPOSERS: Mapping[str, Composer] = {"erl": ERL, "grow": GROW, "teach": TEACH}
"""By the name of the kind."""
