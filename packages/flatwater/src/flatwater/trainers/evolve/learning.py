"""Updates of all members from the shared replay, by a function that is bound once to members and replay."""

from collections.abc import Callable

from flatwater.algorithms.api import Draw, check_result_shape
from flatwater.replay.batch import Batch
from flatwater.replay.ring import Drawn, draw, gather, set_priorities_
from flatwater.trainers.evolve.setup import EvolveSetup
from flatwater.trainers.evolve.state import Population


def bind_learning(setup: EvolveSetup, run: Population) -> Callable[[], None]:
    """Return a function that takes one update of every member, from transitions of all members that it draws."""
    config = setup.config
    population, micro_batches = config.population.size, config.learner.micro_batches
    member_groups = [(0, population)]  # all members in one group
    update_ = setup.algorithm.make_update(config.learner, setup.nets, run.learner, member_groups)
    shape = (population, micro_batches, config.learner.own.batch_size)  # of the drawn transitions
    # A transition may have several steps (n-step returns), whose rewards are summed, discounted by `gamma`.
    steps, gamma = config.learner.own.reward_steps

    def bind_micro_batch(sample: Drawn, number: int) -> Draw:
        """Return a function that gathers micro-batch `number` of a draw for members low ... high - 1."""

        def gather_rows(low: int, high: int) -> Batch:
            """Return the micro-batch's transitions of members low ... high - 1."""
            # None: all transitions count alike, as the replay is not prioritised.
            weight = None if sample.weight is None else sample.weight[low:high, number]
            return gather(run.ring, sample.index[low:high, number], weight, steps=steps, gamma=gamma)

        return gather_rows

    def learn_() -> None:
        """Update all members once from one draw of the replay, and set the drawn transitions' priorities."""
        # One draw for all; each member has rows of its own in it.
        sample = draw(run.ring, shape, run.generators["replay"])
        td_error = update_([bind_micro_batch(sample, number) for number in range(micro_batches)])
        if config.replay.prioritised and td_error is not None:
            check_result_shape(config.learner, "update", td_error, shape)
            set_priorities_(run.ring, sample.index, td_error)

    return learn_
