"""The parts of every algorithm: members trained in place, a tally of the round, and one value that names it.

A *member* is one agent of a population. A network of all members is one tensor, with a row of weights for each member,
and after these `extra` rows that are never trained: the champion's, a copy of the best member so far. The *tally* of a
round is the sums of its metrics over its updates (`UpdateSums`). A *span* is some consecutive members [low, high).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Adam, Span, build_adam
from flatwater.algorithms.compilation import compile_nested
from flatwater.algorithms.config import AlgorithmConfig, Settings, custom_algorithm_place
from flatwater.algorithms.lookup import import_algorithm_of_kind
from flatwater.nets.stack import Layout, Params, bfloat16_autocast, init_
from flatwater.state.allocation import filled_tensor
from flatwater.state.random import stream
from flatwater.state.tree import state
from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr

T = TypeVar("T")


class Network(Protocol):
    """A pure function of stacked weights; its arguments and results are agreed by the algorithm and its networks."""

    @property
    def layout(self) -> Layout:
        """The weights of one member."""


class Actor(Network, Protocol):
    """The policies of all members."""

    def __call__(self, params: Params, obs: Any) -> Float[Tensor, "P B *action"]:  # noqa: ANN401  (any agent's)
        """Return actions in [-1, 1]; member p acts on obs[p]."""


class Critic(Network, Protocol):
    """The action values of all members."""

    def __call__(self, params: Params, obs: Any, action: Float[Tensor, "P B *action"]) -> Float[Tensor, "P B"]:  # noqa: ANN401  (any agent's)
        """Return Q of each observation and action; member p's critic reads obs[p] and action[p]."""


class ValueNetwork(Network, Protocol):
    """A network that gives a number for each choice of a list, a value or a logit; called, it gives the best choice."""

    @property
    def masked(self) -> bool:
        """Whether some choices can be illegal: their numbers are then `nets.actions.IMPOSSIBLE_LOGIT`."""

    def __call__(self, params: Params, obs: Any) -> Int[Tensor, "P B"]:  # noqa: ANN401  (any agent's)
        """Return the position of the choice with the largest number, for each observation."""

    def values(self, params: Params, obs: Any) -> Float[Tensor, "P B A"]:  # noqa: ANN401  (any agent's)
        """Return the numbers of all choices."""


@dataclass(frozen=True)
class Networks:
    """The networks of an algorithm, as functions."""

    actor: Any
    """The policies: an `Actor`, or a `ValueNetwork` where an action is a choice. An algorithm may need more of them,
    such as a `GaussianActor`."""
    critic: Any
    """The action values: a `Critic`, or a `ValueNetwork`; an algorithm without a critic ignores them."""


@state
class UpdateSums:
    """Sums over the updates since the last reading, by member; kept on the device until they are read."""

    sums: dict[str, Float[Tensor, "P"]]
    """Sum of each metric, by its name."""
    added: dict[str, int]
    """Count of the numbers that were added to each sum, one for each member in each addition."""
    skipped: Int[Tensor, "P"]
    """Steps left out because a gradient was not finite, over all networks."""
    skipped_total: Int[Tensor, "P"]
    """Steps left out in the round that was last read."""
    updates: int = 0
    """Updates since the run began."""


@state
class Members:
    """A population in training. An algorithm that trains more networks adds fields, and lists them in `trained`.

    Rows [P + x, n] of a network are the weights of P members, and of x further copies that are never trained.
    """

    actor: Float[Tensor, "P+x n"]
    actor_adam: Adam
    tally: UpdateSums
    seed: int
    """Seed of the streams that updates draw from."""
    first: int
    """Number of the first of these members in the whole population, of which a worker has a part."""

    @property
    def trained(self) -> dict[str, tuple[Float[Tensor, "P+x n"], Adam]]:
        """Rows that a gradient moves, and their optimiser, by name."""
        return {"actor": (self.actor, self.actor_adam)}

    @property
    def targets(self) -> list[tuple[Float[Tensor, "P+x n"], Float[Tensor, "P+x n"]]]:
        """Pairs of rows: a target that follows slowly, and the rows that it follows."""
        return []

    @property
    def inherited(self) -> list[Float[Tensor, "P+x n"]]:
        """All networks' rows that a child gets from its parents as a blend, and the champion as a copy."""
        return [*(rows for rows, _ in self.trained.values()), *(target for target, _ in self.targets)]


@dataclass(frozen=True)
class Setting:
    """Size, seed and device of a population that is built."""

    members: int
    seed: int
    device: torch.device
    first: int = 0
    """Number of the first of these members in the whole population."""
    extra: int = 1
    """Rows that are never trained."""
    dtype: torch.dtype = field(default=torch.float32)

    def rows(self, name: str, layout: Layout) -> Float[Tensor, "P+x n"]:
        """Return initial weights [P + x, n] of a network: those of P members, and x more that are never trained.

        On the meta device they have a shape, and no numbers. `name` is the network's, and decides the random numbers.
        """
        rows = filled_tensor(0, self.members + self.extra, layout.size, dtype=self.dtype, device=self.device)
        # A stream for each first member: parts of a population that are built apart draw different weights.
        init_(rows, layout, stream(self.seed, f"initial weights of {name}", self.first, device=self.device))
        return rows

    def adam(self, size: int) -> Adam:
        """Return an optimiser for the members' networks of `size` weights each."""
        return build_adam(self.members, size, self.dtype, self.device)

    def tally(self, *metrics: str) -> UpdateSums:
        """Return a round's sums before its first update: 0 for each of the metrics, and no skipped steps."""
        zeros = partial(filled_tensor, 0, self.members, device=self.device)
        return UpdateSums(
            sums={name: zeros(dtype=self.dtype) for name in metrics},
            added=dict.fromkeys(metrics, 0),
            skipped=zeros(dtype=torch.int64),
            skipped_total=zeros(dtype=torch.int64),
        )


Draw = Callable[[int, int], Any]
"""Gathers one micro-batch, a `Batch`, for members low ... high - 1; the same each time it is called in one update."""
Update = Callable[[Sequence[Draw]], Tensor | None]
"""Updates every member in place, from one `Draw` for each of G micro-batches, without waiting for the device. Gives
|TD error| [P, G, B] of the gathered transitions, or None if the algorithm has no such errors."""
Explorer = Callable[[Any, Params, Any, torch.Generator], Tensor]
"""Gives actions [P, B, *action] to learn from, of an actor with these weights on these observations."""
Spread = Callable[[Tensor, float, torch.Generator], Tensor]
"""Adds noise of a deviation to actions in [-1, 1]; an environment that knows better than `perturb` brings its own."""


def perturb(action: Tensor, scale: Tensor | float, rng: torch.Generator) -> Tensor:
    """Return `action` in [-1, 1] with Gaussian noise, clamped to [-1, 1].

    Args:
        action: [..., A]; the last axis has the parts of an action.
        scale: standard deviation of the noise; a tensor must broadcast to the action, such as [A] or [P, 1, A].
        rng: a generator on the action's device.
    """
    noise = torch.randn(action.shape, generator=rng, device=action.device, dtype=action.dtype)
    return (action + noise * scale).clamp(-1, 1)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm, as those who train a population know it: a configuration names this value."""

    build: Callable[[Any, Networks, Setting], Members]
    """Allocates a population whole; its first argument is the `AlgorithmConfig`, of which `own` are its settings."""
    make_update: Callable[[Any, Networks, Any, Sequence[Span]], Update]
    """Returns a function that updates a population in place, group by group, so that only one group's batch is in
    memory. A group's update does not depend on the other groups, nor on the process that computes it. How members are
    grouped may change numbers, because `draw_normal` draws for a whole group."""
    explorer: Callable[[Any, Any, Spread], Explorer]
    """Binds how a population acts while it learns from its own transitions."""
    numbers: Callable[[Any, Any], Mapping[str, float]] = lambda _config, _members: {}
    """Named numbers of the round besides the tally's."""
    gaussian: bool = False
    """Whether the actor must give a distribution (`sac.GaussianActor`, or logits of choices), not only an action."""
    chooses: bool = False
    """Whether an action is a position in a list, int64 [P, B], and not numbers in [-1, 1]: actor and critic are then
    `ValueNetwork`s."""
    choosing: str = ""
    """Place, `package.module:NAME`, of the same algorithm where an action is a choice; empty if there is none."""
    settings: type[Settings] = Settings
    """The class of its settings. Those of an algorithm that is listed by name stand with each recipe that offers it."""


def find_algorithm(config: AlgorithmConfig) -> Algorithm:
    """Return the algorithm that the configuration chooses.

    Raises:
        ConfigError: `import_algorithm` refuses it.
    """
    # The place of an algorithm with a table of its own, else that of the user's or an installed package's.
    place = config.places.get(config.algorithm) or custom_algorithm_place(config.algorithm)
    return import_algorithm(place)


def choose_algorithm(config: AlgorithmConfig, *, chooses: bool) -> Algorithm:
    """Return the algorithm that the configuration chooses, or its variant for actions that are choices, if it has one.

    Args:
        config: configuration that names the algorithm.
        chooses: whether an action is a choice from a list.

    Raises:
        ConfigError: `import_algorithm` refuses it.
    """
    algorithm = find_algorithm(config)
    return import_algorithm(algorithm.choosing) if chooses and algorithm.choosing else algorithm


def import_algorithm(place: str) -> Algorithm:
    """Import the algorithm at `package.module:NAME`, and check its parts.

    Raises:
        ConfigError: `place` names no `Algorithm`, the algorithm lacks a part, or its settings are not a config class.
    """
    return import_algorithm_of_kind(
        place,
        Algorithm,
        functions=("build", "make_update", "explorer", "numbers"),
        base=Settings,
        command="flatwater train evolve",  # for messages
    )


def build_members(algorithm: Algorithm, config: AlgorithmConfig, nets: Networks, setting: Setting) -> Members:
    """Build a population with the algorithm's own function, and check the type and the shapes of the result.

    Args:
        algorithm: the algorithm whose `build` allocates it.
        config: configuration of the learner; messages name its algorithm.
        nets: networks of actor and critic.
        setting: number of members, seed and device.

    Raises:
        ConfigError: the result is no `Members`, or one of its tensors has a wrong shape.
    """
    members = algorithm.build(config, nets, setting)
    subject = f"learner.algorithm = {short_repr(config.algorithm)}: build:"
    if not isinstance(members, Members):
        raise ConfigError(f"{subject} expected Members, got a {type(members).__name__}")
    rows, size = setting.members + setting.extra, nets.actor.layout.size
    expected_shapes = [
        ("actor", members.actor, (rows, size)),
        ("tally.skipped", members.tally.skipped, (setting.members,)),
    ]
    for name, (block, adam) in members.trained.items():
        # The rows after the members' are the champion's, which has no gradient.
        expected_shapes.append((f"trained[{name!r}]", block, (rows, *block.shape[1:])))
        expected_shapes.append((f"the gradient of trained[{name!r}]", adam.grad, (setting.members, *block.shape[1:])))
    expected_shapes += [(f"targets[{n}]", target, online.shape) for n, (target, online) in enumerate(members.targets)]
    for name, tensor, shape in expected_shapes:
        if tuple(tensor.shape) != tuple(shape):
            raise ConfigError(f"{subject} {name}: expected the shape {[*shape]}, got {[*tensor.shape]}")
    return members


def check_result_shape(config: AlgorithmConfig, function: str, result: object, shape: Sequence[int]) -> None:
    """Refuse a result of an algorithm's function that is not a tensor of the expected shape.

    Args:
        config: configuration whose algorithm messages name.
        function: name of the function, for messages.
        result: result of the function.
        shape: the expected shape.

    Raises:
        ConfigError: the result is not a tensor of that shape; the message names the function.
    """
    if not isinstance(result, Tensor) or tuple(result.shape) != tuple(shape):
        actual = f"a tensor {[*result.shape]}" if isinstance(result, Tensor) else f"a {type(result).__name__}"
        raise ConfigError(
            f"learner.algorithm = {short_repr(config.algorithm)}: {function}: expected a tensor {[*shape]}, "
            f"got {actual}"
        )


def draw_normal(members: Members, span: Span, like: Tensor, consumer: str, micro_batch: int) -> Tensor:
    """Return standard normal numbers of the shape of `like`, for one group of members in the present update.

    The same seed, update, group, `consumer` and `micro_batch` give the same numbers.

    Args:
        members: the population, or a share of it.
        span: the group's members [low, high).
        like: tensor whose shape, device and precision the numbers get.
        consumer: name of what the numbers are for, such as `target actions`.
        micro_batch: number of the micro-batch.
    """
    # The seed comes from counts that a checkpoint has anyway, so a resumed run draws the same without saved generators.
    counts = members.tally.updates, members.first + span[0], micro_batch
    rng = stream(members.seed, f"update of {consumer}", *counts, device=like.device)
    return torch.randn(like.shape, generator=rng, device=like.device, dtype=like.dtype)


def autocast(config: AlgorithmConfig, device: torch.device) -> AbstractContextManager[object]:
    """Return the context that sets the precision of forward passes."""
    return bfloat16_autocast(device, enabled=config.autocast == "bf16")


def as_leaves(params: Params) -> dict[str, Tensor]:
    """Return the weights as leaves of the autograd graph that require a gradient; they share the storage."""
    return {name: weight.detach().requires_grad_() for name, weight in params.items()}


def gradients(loss: Float[Tensor, "P"], params: Params) -> list[Tensor]:
    """Return the gradients of the members' losses, a tensor for each weight of `params`, in its order.

    A member's loss does not depend on other members' weights, so the sum of all losses has the same gradients.
    """
    # A weight that the loss does not reach gets zeros and not None.
    return list(torch.autograd.grad(loss.sum(), list(params.values()), materialize_grads=True))


def accumulate_(gradient_views: Params, grads: Sequence[Tensor], *, first: bool) -> None:
    """Add a micro-batch's gradients to those of its update; the first micro-batch overwrites those of the last update.

    Args:
        gradient_views: views of the optimiser's gradients by weight, written in place.
        grads: gradients of one micro-batch, in the same order.
        first: whether the micro-batch is the first of its update.
    """
    for view, grad in zip(gradient_views.values(), grads, strict=True):
        if first:
            view.copy_(grad)
        else:
            view.add_(grad)


def keep_single_batch(draws: Sequence[Draw], groups: Sequence[Span]) -> Sequence[Draw]:
    """Return functions that give the same batches as `draws`; a single batch is gathered here, once for all stages.

    Args:
        draws: functions that each gather a micro-batch of some members.
        groups: spans of members that are gathered one after the other.

    Returns:
        `draws` themselves if there are several batches: together they would fill memory, so each stage gathers again.
    """
    if len(draws) * len(groups) > 1:
        return draws
    batch = draws[0](*groups[0])
    return [lambda _low, _high: batch]


def bind_compiled(config: AlgorithmConfig, function: Callable[..., T], *bound: Any) -> Callable[..., T]:  # noqa: ANN401  (whatever the function takes)
    """Return `function` with `bound` as its first arguments; compiled if the configuration says so."""

    def call_with_bound(*arguments: Any) -> T:  # noqa: ANN401  (whatever the function takes)
        """Call the function with the bound arguments first."""
        return function(*bound, *arguments)

    return compile_nested(call_with_bound) if config.compile else call_with_bound


def move_targets_(members: Members, tau: float) -> None:
    """Move every target network towards the network that it follows by the share `tau` (polyak averaging)."""
    member_count = len(members.tally.skipped)  # which has a number for each member
    for target, online in members.targets:
        # The members' rows alone: the rows after them are the champion's.
        target[:member_count].lerp_(online[:member_count], tau)


def add_to_tally_(tally: UpdateSums, name: str, value: Float[Tensor, "p"], span: Span) -> None:
    """Add one number for each member of `span` to a metric's sum in the tally, the round's sums.

    Args:
        tally: sums of each metric by member, updated.
        name: name of the metric, such as `critic_loss`.
        value: a micro-batch's number for each member of `span`, [p].
        span: the members [low, high).
    """
    low, high = span
    tally.sums[name][low:high].add_(value)
    tally.added[name] += high - low


def count_step_(tally: UpdateSums, name: str, norm: Float[Tensor, "P"], finite: Bool[Tensor, "P"]) -> None:
    """Add an optimiser step's gradient norms to the tally, the round's sums, and count the members that skipped it.

    Args:
        tally: sums of each metric by member, updated.
        name: name of the metric of the norms, such as `critic_grad_norm`.
        norm: gradient norm of every member, before clipping.
        finite: mask of finite norms; a member whose norm is not finite took no step.
    """
    add_to_tally_(tally, name, norm, (0, len(norm)))
    tally.skipped.add_(~finite)


def read_tally_(tally: UpdateSums) -> dict[str, float]:
    """Return the mean of each metric over members and updates since the last reading, as `train/NAME`; zero the sums.

    `train/skipped` is no mean, but the number of steps that members skipped. A metric without an update is left out.
    """
    members = len(tally.skipped)
    # `skipped_total` keeps the number for the round's alarms, which are read later. Only here does a learner wait for
    # its device.
    tally.skipped_total.copy_(tally.skipped)
    tally.skipped.zero_()
    losses = dict[str, float]()
    if any(tally.added.values()):  # there was an update
        losses["train/skipped"] = float(tally.skipped_total.sum())
    for name, total in tally.sums.items():
        # `added` counts one for each member, so this is the number of additions for the whole population.
        additions = tally.added[name] // members
        if additions:
            losses[f"train/{name}"] = float(total.double().mean()) / additions
        tally.added[name] = 0
        total.zero_()
    return losses
