"""An algorithm that learns from blocks of steps, as a value that a configuration names: PPO, or a user's.

A user's functions are guarded: what they raise is reported as theirs, with file and line, and their results are
checked.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.learner import STEP_METRICS
from flatwater.algorithms.lookup import import_algorithm_of_kind
from flatwater.algorithms.on_policy_config import OnPolicyConfig, OnPolicySettings
from flatwater.algorithms.returns import estimate_targets
from flatwater.nets.actions import Distribution
from flatwater.user_code import CallGuard, find_source_line
from flatwater_watch.errors import ConfigError, UserCodeError, require
from flatwater_watch.sanitize import short_repr

LOSS = "loss"
"""Name of the number that is differentiated, among those that an algorithm's loss gives."""
MinibatchNumbers = Callable[[Any, Distribution, Float[Tensor, "U b"], Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Gives 0-d tensors by name, of the algorithm's settings, the policy's distribution of actions at each step, the
critic's values, and the minibatch: `UPDATE_COLUMNS` [U, b, ...] by name, and 0-d weights and scheduled settings."""
Targets = Callable[[Any, Mapping[str, Tensor]], tuple[Tensor, Tensor]]
"""Gives the advantages and the returns [T, B] of a block, of the algorithm's settings and its columns [T, B, ...]."""
Numbers = Mapping[str, Tensor]
"""Tensors of floats by name."""
InitialState = Callable[[Any], Numbers]
"""Gives the algorithm's state when a run begins, of the algorithm's settings."""
NextState = Callable[[Any, Numbers, Numbers, Numbers], Numbers]
"""Gives the state of the next round, of the algorithm's settings, the state, the block's columns [T, B, ...] with
`advantage` and `returns`, and the means of `metrics` over the round's updates, 0-d."""


TARGETS = ("advantage", "returns")
"""Columns of a block that an algorithm's `targets` gives."""
UPDATE_COLUMNS = (
    "obs", "taught", "legal", "action", "led", "alive", "starts", "log_prob", "value", *TARGETS,
)  # fmt: skip
"""Columns of a rollout that an update reads, as far as the rollout has them."""
TAKEN_NAMES = frozenset({*UPDATE_COLUMNS, "reward", "terminated", "truncated", "next_value", LOSS})
"""Names that a minibatch or a block has, which the algorithm's state cannot have."""
R = TypeVar("R")


@dataclass(frozen=True)
class OnPolicyAlgorithm:
    """An algorithm that learns from blocks of steps: a configuration names this value."""

    loss: MinibatchNumbers
    """Gives `loss`, which is differentiated for all weights of policy and critic, and `metrics`; a pure function."""
    targets: Targets = estimate_targets
    """Gives what the loss reads as `advantage` and `returns`, once for each block. Left out: generalised advantages,
    standardised, and what the critic should predict."""
    metrics: tuple[str, ...] = (LOSS,)
    """Names of the loss's numbers that are recorded, as `train/NAME`, in means over a round's updates."""
    numbers: MinibatchNumbers | None = None
    """Gives further numbers, of the last minibatch after a round's last update, in rounds with an evaluation."""
    settings: type[OnPolicySettings] = OnPolicySettings
    """The class of its settings."""
    state: InitialState | None = None
    """Gives tensors that the algorithm keeps from round to round, such as a coefficient that adapts. Loss, targets and
    numbers find them in minibatch and block by their names; 0-d tensors are recorded, as `train/NAME`."""
    next_state: NextState | None = None
    """Gives these tensors for the next round, once after a round's updates; a pure function."""

    def initial_state(self, settings: OnPolicySettings) -> Numbers:
        """Return the state with which a run begins; empty if the algorithm keeps none."""
        return self.state(settings) if self.state else {}


RECORDED_ANYWAY = frozenset({*STEP_METRICS, "lr", "updates", "early_stops"})
"""Names of numbers `train/NAME` that a run has whatever the algorithm."""


def find_on_policy_algorithm(config: OnPolicyConfig) -> OnPolicyAlgorithm:
    """Return the algorithm that the configuration chooses.

    The functions of a user's algorithm are wrapped: their errors are reported as the user's, and their results checked.
    Its function `state` is called here, once.

    Raises:
        ConfigError: `import_on_policy_algorithm` or `_guard_algorithm` refuses it.
    """
    algorithm = import_on_policy_algorithm(config.place)
    return algorithm if config.is_shipped else _guard_algorithm(config, algorithm)


def _guard_algorithm(config: OnPolicyConfig, algorithm: OnPolicyAlgorithm) -> OnPolicyAlgorithm:
    """Return a user's algorithm with each function wrapped by `_guard_function`, which checks its results.

    Raises:
        ConfigError: its first state is not as expected, or `target_kl` is set and the algorithm has no metric `kl`.
    """
    subject, metrics = _message_subject(config), algorithm.metrics
    state, next_state = algorithm.state, algorithm.next_state
    initial_state: dict[str, Tensor] = {}
    if state is not None:
        taken_names = TAKEN_NAMES | RECORDED_ANYWAY | {*metrics, *config.scheduled}
        find_fault_of_state = partial(_fault_of_state, taken_names=taken_names)
        state = _guard_function(subject, "state", state, parameters="settings", find_fault=find_fault_of_state)
        initial_state = {name: tensor.detach() for name, tensor in state(config.own).items()}
    if next_state is not None:
        find_fault = partial(_fault_of_next_state, initial=initial_state)
        next_state = _guard_function(subject, "next_state", next_state, "settings, state, block, means", find_fault)
    expected = f"0 with {subject}, whose metrics have no kl"
    require("kl" in metrics or not config.target_kl, "learner.target_kl", config.target_kl, expected)
    guard_numbers = partial(_guard_function, subject, parameters="settings, policy, value, batch")
    # `dict.fromkeys` keeps each name once: `loss` may be a metric, too.
    find_fault_of_loss = partial(_fault_of_numbers, expected=dict.fromkeys((LOSS, *metrics)))
    numbers = algorithm.numbers
    return replace(
        algorithm,
        loss=guard_numbers(LOSS, algorithm.loss, find_fault=find_fault_of_loss),
        targets=_guard_function(subject, "targets", algorithm.targets, "settings, block", _fault_of_targets),
        numbers=None if numbers is None else guard_numbers("numbers", numbers, find_fault=_fault_of_numbers),
        state=(lambda _: initial_state) if state else None,  # the user's function is called once, above
        next_state=next_state,
    )


def import_on_policy_algorithm(place: str) -> OnPolicyAlgorithm:
    """Import the algorithm at `package.module:NAME`, and check its parts.

    Raises:
        ConfigError: `place` names no `OnPolicyAlgorithm`, or a part of it is of another type.
    """
    algorithm = import_algorithm_of_kind(
        place,
        OnPolicyAlgorithm,
        functions=("loss", "targets"),
        base=OnPolicySettings,
        command="flatwater train ppo",  # for messages
    )
    subject, metrics = f"learner.algorithm = {short_repr(place)}", cast("Any", algorithm.metrics)
    for name in ("numbers", "state", "next_state"):
        function = getattr(algorithm, name)
        if function is not None and not callable(function):
            raise ConfigError(f"{subject}: {name}: expected a function or None, got {short_repr(function)}")
    if (algorithm.state is None) != (algorithm.next_state is None):
        raise ConfigError(f"{subject}: state and next_state: expected both or neither, got one of them")
    has_names = isinstance(metrics, tuple) and all(isinstance(name, str) and name.isidentifier() for name in metrics)
    # A name that stands twice, or that a run records anyway, would have two values.
    if not has_names or len(set(metrics)) < len(metrics) or RECORDED_ANYWAY & set(metrics):
        raise ConfigError(
            f"{subject}: metrics: expected a tuple of names, each once and none of "
            f"{', '.join(sorted(RECORDED_ANYWAY))}, got {short_repr(metrics)}"
        )
    return algorithm


def require_finite_update(config: OnPolicyConfig, *, updates: int, skipped_updates: int) -> None:
    """Refuse a round in which no update of a user's algorithm had a finite gradient.

    Args:
        config: settings that name the algorithm.
        updates: updates of the round.
        skipped_updates: updates that were left out, as their gradient was not finite.

    Raises:
        UserCodeError: all were left out; with file and line of the loss.
    """
    were_all_skipped = updates > 0 and skipped_updates == updates
    if not config.is_shipped and were_all_skipped:
        place = _source_text(import_on_policy_algorithm(config.place).loss)
        raise UserCodeError(
            f"{_message_subject(config)}: loss: expected a loss with a finite gradient, got NaN or infinity in each of "
            f"the round's updates ({updates}){place}. Look at what it divides by, and at its logarithms"
        )


def _guard_function(
    subject: str, name: str, function: Callable[..., R], parameters: str, find_fault: Callable[..., str]
) -> Callable[..., R]:
    """Return a function that calls the user's `function`, reports its errors as the user's, and checks its result.

    Args:
        subject: beginning of messages.
        name: name of the function among the algorithm's parts.
        function: the function.
        parameters: its parameters, for messages.
        find_fault: takes a result and the arguments that gave it, and returns what is wrong with the result; empty if
            it is right.
    """
    guard = CallGuard(subject, function, call=f"{name}()", expected=f"{name}({parameters})")
    source = _source_text(function)

    def call(*arguments: Any) -> R:  # noqa: ANN401  (those of `function`)
        """Return the checked result of the user's function."""
        with guard:  # reports what the function raises as an error of the user's code
            result = function(*arguments)
        fault = find_fault(result, *arguments)
        if fault:
            raise ConfigError(f"{subject}: {name}: {fault}{source}")
        return result

    return call


def _fault_of_numbers(result: Any, *_: object, expected: Collection[str] = ()) -> str:  # noqa: ANN401  (what a user's function gives)
    """Return what is wrong with the result of the algorithm's `loss` or `numbers`; empty if it is right.

    Args:
        result: the result.
        expected: names of the numbers that it must have; empty for any.
    """
    if not isinstance(result, Mapping):
        return f"expected a dict of 0-d tensors, got {_form_text(result)}"
    if expected and result.keys() != {*expected}:
        given_names = ", ".join(map(str, result)) or "none"
        return f"expected the numbers {', '.join(expected)}: loss, and the algorithm's metrics; got {given_names}"
    for key, number in result.items():
        if not isinstance(number, Tensor) or number.dim() or not number.is_floating_point():
            return f"{key}: expected a 0-d tensor of floats, such as a mean, got {_form_text(number)}"
    if expected and not result[LOSS].requires_grad:
        return "expected a loss that depends on policy or value, got one without a gradient"
    return ""


def _fault_of_targets(result: Any, _settings: object, block: Mapping[str, Tensor]) -> str:  # noqa: ANN401  (what a user's function gives)
    """Return what is wrong with the targets of a block; empty if they are right."""
    shape = block["reward"].shape
    if not isinstance(result, tuple) or len(result) != len(TARGETS):
        return f"expected two tensors {[*shape]}, {' and '.join(TARGETS)}, got {_form_text(result)}"
    for name, tensor in zip(TARGETS, result, strict=True):
        if not isinstance(tensor, Tensor) or tensor.shape != shape:
            return f"{name}: expected a tensor {[*shape]}, got {_form_text(tensor)}"
    return ""


def _fault_of_state(result: Any, *_: object, taken_names: Collection[str]) -> str:  # noqa: ANN401  (what a user's function gives)
    """Return what is wrong with the state with which an algorithm begins; empty if it is right."""
    if not isinstance(result, Mapping):
        return f"expected a dict of tensors by name, got {_form_text(result)}"
    for name, tensor in result.items():
        if not isinstance(name, str) or not name.isidentifier() or name in taken_names:
            return f"expected a name other than {', '.join(sorted(taken_names))}, got {short_repr(name)}"
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            return f"{name}: expected a tensor of floats, got {_form_text(tensor)}"
    return ""


def _fault_of_next_state(result: Any, *_: object, initial: Numbers) -> str:  # noqa: ANN401  (what a user's function gives)
    """Return what is wrong with the state of the next round; empty if it is right.

    It must have the names of the `initial` state, each with the same shape and dtype.
    """
    if not isinstance(result, Mapping) or result.keys() != initial.keys():
        given_value = ", ".join(map(str, result)) if isinstance(result, Mapping) else _form_text(result)
        return f"expected a dict of the tensors {', '.join(initial)}, got {given_value}"
    for name, tensor in result.items():
        if _form_text(tensor) != _form_text(initial[name]):
            return f"{name}: expected {_form_text(initial[name])}, got {_form_text(tensor)}"
    return ""


def _message_subject(config: OnPolicyConfig) -> str:
    """Return the beginning of messages about the algorithm."""
    return f"learner.algorithm = {short_repr(config.place)}"


def _source_text(function: object) -> str:
    """Return where a function of the user's stands, in brackets; empty if it has no text."""
    line = find_source_line(function)
    return f" ({line})" if line else ""


def _form_text(value: object) -> str:
    """Return words for the form of a value: `a tensor [128] of torch.int64`, `a list`."""
    if isinstance(value, Tensor):
        return f"a tensor {[*value.shape]} of {value.dtype}"
    return f"a {type(value).__name__}"
