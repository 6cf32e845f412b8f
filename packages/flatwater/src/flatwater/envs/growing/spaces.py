"""The action of a step: five numbers for each host, an operation and its arguments."""

from enum import IntEnum

from flatwater.envs.growing.config import LifecycleConfig

HEADS = ("operation", "slot", "blueprint", "alpha_target", "tempo")
"""The columns of an action, in order."""
OPERATION, SLOT, BLUEPRINT, ALPHA_TARGET, TEMPO = range(len(HEADS))
BLUEPRINTS = 3
"""Kinds of seeds of every host."""


class Operation(IntEnum):
    """The operations of an agent in a step, in one slot of each host."""

    WAIT = 0
    GERMINATE = 1
    ADVANCE = 2
    SET_ALPHA_TARGET = 3
    FOSSILISE = 4
    PRUNE = 5


_RELEVANT_HEADS = {
    Operation.WAIT: (),
    Operation.GERMINATE: (SLOT, BLUEPRINT),
    Operation.ADVANCE: (SLOT, TEMPO),
    Operation.SET_ALPHA_TARGET: (SLOT, ALPHA_TARGET, TEMPO),
    Operation.FOSSILISE: (SLOT,),
    Operation.PRUNE: (SLOT,),
}
RELEVANT = tuple(tuple(h in (OPERATION, *_RELEVANT_HEADS[o]) for h in range(len(HEADS))) for o in Operation)
"""Whether a head matters for an operation, [6 operations, 5 heads]. The operation's own always does."""


def head_sizes(lifecycle: LifecycleConfig, slots: int) -> tuple[int, ...]:
    """Return the number of choices of each head, for hosts with `slots` slots."""
    return (len(Operation), slots, BLUEPRINTS, len(lifecycle.alpha_targets), len(lifecycle.tempos))
