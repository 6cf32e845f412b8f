"""The life of a seed as data: which operation, and how much time, leads from which stage to which.

dormant -> germinated -> training -> blending -> holding -> fossilised
               |             |           |          |
               +-------------+--- pruned +----------+    pruned -> embargoed -> resetting -> dormant
"""

from enum import IntEnum

from flatwater.envs.growing.spaces import Operation


class Stage(IntEnum):
    """Where a slot is in its life."""

    DORMANT = 0
    """Empty."""
    GERMINATED = 1
    """The seed has its first weights and does nothing."""
    TRAINING = 2
    """It learns behind the host, whose output it does not change."""
    BLENDING = 3
    """Its alpha moves towards its target."""
    HOLDING = 4
    """Its alpha is what it was to be."""
    FOSSILISED = 5
    """Part of the host for the rest of the episode; it still learns."""
    PRUNED = 6
    """Taken out in the step before."""
    EMBARGOED = 7
    """Closed, so that pruning and germinating in turn does not pay."""
    RESETTING = 8
    """The last step before it is empty again."""


BY_OPERATION: dict[tuple[Operation, Stage], Stage] = {
    (Operation.GERMINATE, Stage.DORMANT): Stage.GERMINATED,
    (Operation.ADVANCE, Stage.GERMINATED): Stage.TRAINING,
    (Operation.ADVANCE, Stage.TRAINING): Stage.BLENDING,
    (Operation.SET_ALPHA_TARGET, Stage.BLENDING): Stage.BLENDING,
    (Operation.SET_ALPHA_TARGET, Stage.HOLDING): Stage.BLENDING,
    (Operation.FOSSILISE, Stage.HOLDING): Stage.FOSSILISED,
    (Operation.PRUNE, Stage.GERMINATED): Stage.PRUNED,
    (Operation.PRUNE, Stage.TRAINING): Stage.PRUNED,
    (Operation.PRUNE, Stage.BLENDING): Stage.PRUNED,
    (Operation.PRUNE, Stage.HOLDING): Stage.PRUNED,
}
"""Where an operation leads. What is not here is impossible, and masked."""

BY_TIME: dict[Stage, Stage] = {
    Stage.BLENDING: Stage.HOLDING,
    Stage.PRUNED: Stage.EMBARGOED,
    Stage.EMBARGOED: Stage.RESETTING,
    Stage.RESETTING: Stage.DORMANT,
}
"""Where a slot goes by itself: from blending when alpha is at its target, from the others when their time is over."""

HOSTED = (Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING, Stage.FOSSILISED)
"""A seed is there, and rent is due."""
MIXED_IN = (Stage.BLENDING, Stage.HOLDING, Stage.FOSSILISED)
"""The seed can change the host's output, so its contribution is measured."""
