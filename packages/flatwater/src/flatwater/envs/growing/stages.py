"""The stages of a slot as data: the next stage after each operation, and after time.

dormant -> germinated -> training -> blending -> holding -> fossilised
               |             |           |          |
               +-------------+--- pruned +----------+    pruned -> embargoed -> resetting -> dormant
"""

from enum import IntEnum

from flatwater.envs.growing.spaces import Operation


class SlotStage(IntEnum):
    """Stages of a slot's life."""

    DORMANT = 0
    """Empty."""
    GERMINATED = 1
    """The seed has its first weights and does nothing."""
    TRAINING = 2
    """The seed learns behind the host, whose output it does not change."""
    BLENDING = 3
    """The seed's alpha moves towards its target."""
    HOLDING = 4
    """The seed's alpha is at its target."""
    FOSSILISED = 5
    """Part of the host for the rest of the episode; it still learns."""
    PRUNED = 6
    """Taken out in the step before."""
    EMBARGOED = 7
    """Closed, so that pruning and germinating in turn does not pay."""
    RESETTING = 8
    """The last step before it is empty again."""


STAGE_AFTER_OPERATION: dict[tuple[Operation, SlotStage], SlotStage] = {
    (Operation.GERMINATE, SlotStage.DORMANT): SlotStage.GERMINATED,
    (Operation.ADVANCE, SlotStage.GERMINATED): SlotStage.TRAINING,
    (Operation.ADVANCE, SlotStage.TRAINING): SlotStage.BLENDING,
    (Operation.SET_ALPHA_TARGET, SlotStage.BLENDING): SlotStage.BLENDING,
    (Operation.SET_ALPHA_TARGET, SlotStage.HOLDING): SlotStage.BLENDING,
    (Operation.FOSSILISE, SlotStage.HOLDING): SlotStage.FOSSILISED,
    (Operation.PRUNE, SlotStage.GERMINATED): SlotStage.PRUNED,
    (Operation.PRUNE, SlotStage.TRAINING): SlotStage.PRUNED,
    (Operation.PRUNE, SlotStage.BLENDING): SlotStage.PRUNED,
    (Operation.PRUNE, SlotStage.HOLDING): SlotStage.PRUNED,
}
"""Stage after an operation. What is not here is impossible, and masked."""

STAGE_AFTER_TIME: dict[SlotStage, SlotStage] = {
    SlotStage.BLENDING: SlotStage.HOLDING,
    SlotStage.PRUNED: SlotStage.EMBARGOED,
    SlotStage.EMBARGOED: SlotStage.RESETTING,
    SlotStage.RESETTING: SlotStage.DORMANT,
}
"""Stage after time: from blending when alpha is at its target, from the others when their time is over."""

HOSTED = (SlotStage.GERMINATED, SlotStage.TRAINING, SlotStage.BLENDING, SlotStage.HOLDING, SlotStage.FOSSILISED)
"""Stages with a seed, for which rent is due."""
MIXED_IN = (SlotStage.BLENDING, SlotStage.HOLDING, SlotStage.FOSSILISED)
"""Stages in which the seed can change the host's output, so that its contribution is measured."""
