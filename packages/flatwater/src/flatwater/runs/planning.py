"""Plans the memory of a run, or of a policy's use, before anything of it is allocated.

The plan has the exact bytes of the state, which is built on torch's meta device. The bytes of a phase's temporary
tensors, its transients, are an estimate: the phase runs on the meta device, and the largest sum of tensors alive at
once is multiplied by a factor. The ledger of the run says what a phase really took.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar

import torch

from flatwater.envs.open_envs import close_open_envs
from flatwater.memory.nodes import refuse_nodes
from flatwater.memory.planner import Plan, group_bytes, plan_text, require_fit
from flatwater.mirror.uploader import BUFFER_OWNER
from flatwater.runs.config import RunConfig
from flatwater.runs.phase_measurement import phase_bytes
from flatwater.state.tree import nbytes
from flatwater.storage.upload import QUEUE_BYTES
from flatwater_watch.errors import MemoryLimitError
from flatwater_watch.meters.limit import memory_limits
from flatwater_watch.meters.process import resident_bytes
from flatwater_watch.units import format_bytes, parse_bytes

C = TypeVar("C")
T = TypeVar("T")
S = TypeVar("S")

META = torch.device("meta")
LAZY_LIBRARY_BYTES = 40 << 20
"""Bytes that libraries load when they first compute, which is after the plan: 24 and 35 MB were measured."""
WORKER_BYTES = (150 if torch.version.cuda is None else 285) << 20
"""Private bytes of a worker's interpreter and libraries: 156 and 157 MB were measured, 302 and 303 MB where torch is
built for CUDA, which it loads whatever a worker computes on."""
RAY_BYTES = 32 << 20
"""Private bytes that Ray adds to a worker on a cluster: 33 MB were measured."""
MINIMUM_SAVED_SHARE = 0.01
"""Share of the state's bytes that a change of a setting must save to be suggested."""


def make_plan(
    owners: Mapping[str, int],
    transients: Callable[[], Mapping[str, int]],
    *,
    config: RunConfig,
    device: torch.device,
    workers: Sequence[Mapping[str, int]] = (),
    apart: bool = False,
    largest_message: int = 0,
    mapped: Mapping[str, int] = MappingProxyType({}),
    here: AbstractSet[str] = frozenset(),
    extra_bytes: Mapping[str, int] = MappingProxyType({}),
) -> Plan:
    """Return the plan of a run.

    Args:
        owners: bytes by path of the state, built on the meta device.
        transients: runs each phase on the meta device, and returns the most bytes of its tensors, by phase.
        config: settings of the run, with its budget.
        device: device on which the run will compute, whose memory is planned.
        workers: for each worker process, the bytes by path of its state.
        apart: whether the workers are on other machines.
        largest_message: bytes of the largest message between workers and the run.
        mapped: bytes by path of memory-mapped files, which processes share.
        here: phases that only the run's own process computes, never a worker.
        extra_bytes: bytes by phase that are in no tensor.

    Raises:
        ConfigError: a phase refuses the configuration.
    """
    phases = phase_bytes(transients, extra_bytes)
    # A worker computes one phase at a time, so it needs the bytes of the largest phase, not of all together.
    worker_peak = max((size for phase, size in phases.items() if phase not in here), default=0)
    worker_base = WORKER_BYTES + (RAY_BYTES if apart else 0)
    mirror_owner = {} if config.mirror is None else {BUFFER_OWNER: QUEUE_BYTES}
    return Plan(
        owners={**owners, **mirror_owner},
        transients=phases,
        # On a GPU the process's own pages are in other memory than the plan's.
        base_bytes=resident_bytes() + LAZY_LIBRARY_BYTES if device.type == "cpu" else 0,
        limits=device_limits(device),
        budget=config.budget_bytes,
        workers=[worker_base + sum(state.values()) + worker_peak for state in workers],
        worker_owners=workers,
        worker_transients=worker_peak if workers else 0,
        apart=apart,
        largest_message=largest_message,
        mapped=mapped,
    )


def plan_policy_use(
    what: str,
    owners: Mapping[str, int],
    transients: Mapping[str, int],
    *,
    budget: str | None,
    mapped: Mapping[str, int] = MappingProxyType({}),
) -> Plan:
    """Return the plan of a command that uses a trained policy, on this process's CPU.

    Args:
        what: name of the command.
        owners: bytes by path of the state that the command allocates and keeps.
        transients: the most bytes of each phase of the command, as `phase_bytes` returns them.
        budget: memory that the user allows, such as 2GiB; None for no budget.
        mapped: bytes by path of memory-mapped files.

    Raises:
        ConfigError: the budget is not an amount of memory.
    """
    return Plan(
        owners=owners,
        transients=transients,
        base_bytes=resident_bytes() + LAZY_LIBRARY_BYTES,
        limits=memory_limits(),
        budget=None if budget is None else parse_bytes(budget),
        mapped=mapped,
        what=what,
    )


Alternative = tuple[str, str, C]
"""A change to suggest, such as `replay.capacity = 1000`, the first name in the paths of the owner that it makes
smaller, and the configuration with that change."""


def with_advice(
    plan: Plan,
    alternatives: Iterable[Alternative[C]],
    owners: Mapping[str, int],
    plan_owners: Callable[[C], Mapping[str, int]],
) -> Plan:
    """Return the plan; if it does not fit, with suggestions: changes of settings, and the bytes that they save.

    Args:
        plan: plan of the configuration.
        alternatives: changes of the configuration; the saving of each is planned, not guessed.
        owners: bytes by path of the configuration.
        plan_owners: returns the bytes by path of another configuration.
    """
    if plan.fits:
        return plan
    current_bytes = group_bytes(owners, depth=1)
    suggestions = []
    if plan.base_bytes >= plan.budget_bytes:  # no smaller state can make it fit
        suggestions.append(
            f"budget: expected more than the {format_bytes(plan.base_bytes)} that interpreter and libraries take alone"
        )
    for change, group, smaller_config in alternatives:
        reduced_owners = group_bytes(plan_owners(smaller_config), depth=1)
        saved_bytes = current_bytes[group] - reduced_owners[group]
        if saved_bytes > MINIMUM_SAVED_SHARE * sum(current_bytes.values()):
            suggestions.append(
                f"{change}: {group} would take {format_bytes(reduced_owners[group])} "
                f"instead of {format_bytes(current_bytes[group])}"
            )
    return replace(plan, suggestions=tuple(suggestions))


@dataclass(frozen=True)
class Knob:
    """A setting whose half is suggested where a run does not fit, as it makes an owner of memory smaller."""

    setting: str
    """Dotted name of the setting, such as `replay.capacity`."""
    owner: str
    """First name in the paths of the state that become smaller."""
    least: Callable[[Any], int] = lambda _: 1
    """Returns the smallest value of the setting, from the configuration."""
    unit: Callable[[Any], int] = lambda _: 1
    """Returns the number of which the setting must be a multiple, from the configuration."""


def smaller_settings(config: C, knobs: Iterable[Knob]) -> Iterator[Alternative[C]]:
    """Yield for each knob that can be halved the change as text, its owner, and the changed configuration."""
    for knob in knobs:
        value = attrgetter(knob.setting)(config)
        unit = knob.unit(config)
        # Half, rounded down to a multiple of the unit.
        smaller_value = max(value // 2 // unit * unit, knob.least(config))
        if 0 < smaller_value < value:  # else the setting is at its smallest value, or off
            yield f"{knob.setting} = {smaller_value}", knob.owner, with_setting(config, knob.setting, smaller_value)


def with_setting(config: Any, name: str, value: object) -> Any:  # noqa: ANN401  (settings of any kind)
    """Return the configuration with a new value of one setting, by its dotted name such as `checkpoints.keep`."""
    outer_name, _, inner_name = name.partition(".")
    new_value = with_setting(getattr(config, outer_name), inner_name, value) if inner_name else value
    return replace(config, **{outer_name: new_value})


def plan_one_process(
    config: Any,  # noqa: ANN401  (a RunConfig of any kind)
    device: torch.device,
    build: Callable[[Any], tuple[T, S]],
    transients: Callable[[T, S], Mapping[str, int]],
    alternatives: Iterable[Alternative[Any]],
) -> Plan:
    """Return the plan of a run that has no workers, with suggestions if it does not fit.

    Args:
        config: settings of the run.
        device: device of the run, whose memory is planned.
        build: returns the constants and the state of a run, from its settings, on the meta device.
        transients: runs each phase on the meta device, from constants and state. Returns the most bytes of its tensors.
        alternatives: changes of the settings that may make the run smaller.
    """
    setup, run = build(config)
    owners = nbytes(run)
    plan = make_plan(owners, lambda: transients(setup, run), config=config, device=device)

    @close_open_envs()  # else environments of a suggestion would stay open in a run that starts over budget
    def plan_owners(other: Any) -> Mapping[str, int]:  # noqa: ANN401  (a RunConfig of any kind)
        _setup, state = build(other)
        return nbytes(state)

    return with_advice(plan, alternatives, owners, plan_owners)


def device_limits(device: torch.device) -> dict[str, int]:
    """Return each limit, by name, on the device's memory: the most bytes that this process can use there."""
    if device.type == "cuda":
        free_bytes, _total_bytes = torch.cuda.mem_get_info(device)
        # Memory that this process has reserved is not free, yet it can use it.
        return {str(device): free_bytes + torch.cuda.memory_reserved(device)}
    return memory_limits()


def refuse_unfit(plan: Plan, config: RunConfig) -> None:
    """Refuse a run whose plan does not fit, before anything of it is allocated.

    Raises:
        MemoryLimitError: the plan does not fit the budget, and the settings do not ask to start anyway; or a machine
            has no space for a worker.
    """
    if config.start_over_budget:
        refuse_nodes(plan.nodes)  # a worker without a machine could not start at all
    else:
        require_fit(plan)


def allocate_planned_state(build: Callable[[], T], plan: Plan) -> T:
    """Return the state that `build` allocates.

    Raises:
        MemoryLimitError: the system refuses the memory; the message names the plan's largest owners.
    """
    try:
        return build()
    except RuntimeError as error:  # torch has no error of its own for a CPU's memory
        if "allocate memory" not in str(error):
            raise
        raise MemoryLimitError(f"the system refuses to allocate the memory of the run. {plan_text(plan)}") from error
