"""Preparation of a run of any kind: its settings are checked, its plan is built and tried out on the meta device.

Nothing is allocated for it. The state's bytes are exact. A phase's transients are estimated from the highest sum of
tensors alive at once while the phase runs on the meta device; the ledger of the run says what a phase really took.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, TypeVar

import torch

from flatwater.algorithms.config import AlgorithmConfig, PPOConfig
from flatwater.algorithms.graph import require_compiler
from flatwater.envs.open_envs import close_open_envs
from flatwater.memory.nodes import refuse_nodes
from flatwater.memory.planner import Plan, group_bytes, plan_text, refuse
from flatwater.mirror.opening import taken_names
from flatwater.mirror.uploader import OWNER
from flatwater.recipe import recipe_of_config
from flatwater.runs.callbacks import NO_CALLBACKS, Callbacks, find_callbacks
from flatwater.runs.config import RunConfig, WorkersRunConfig
from flatwater.runs.machine import find_device
from flatwater.runs.trackers import check_trackers
from flatwater.state.tree import nbytes
from flatwater.storage.objects import is_url
from flatwater.storage.sending import QUEUE_BYTES
from flatwater_watch.errors import ConfigError, MemoryLimitError
from flatwater_watch.events.command import check_command
from flatwater_watch.meters.fork import copy_unsafe_driver, run_in_fork
from flatwater_watch.meters.limit import memory_limits
from flatwater_watch.meters.process import resident_bytes
from flatwater_watch.units import format_bytes, parse_bytes

C = TypeVar("C")
T = TypeVar("T")
S = TypeVar("S")

META = torch.device("meta")
KERNELS = 2.5
"""Factor from a phase's tensors to its bytes: kernels have workspaces, and allocators' blocks do not fit exactly.
Measured at the sizes of the benchmarks: 2.0, 1.8 and 2.6."""
AUTOGRAD_REFUSES_FORK = "in combination with fork-based multiprocessing"
"""Part of the message of torch's `RuntimeError` in a fork of a process whose autograd has begun its threads."""
LATER_BYTES = 40 << 20
"""Bytes that libraries load when they first compute, after the plan: 24 and 35 MB were measured."""
WORKER_BYTES = (150 if torch.version.cuda is None else 285) << 20
"""Private bytes of a worker's interpreter and libraries: 156 and 157 MB were measured, 302 and 303 MB where torch is
built for CUDA, which it loads whatever a worker computes on."""
RAY_BYTES = 32 << 20
"""Private bytes that Ray adds to a worker on a cluster: 33 MB were measured."""
HINTS = (
    "expect_true",
    "guard_or_false",
    "guard_or_true",
    "guard_size_oblivious",
    "guarding_hint_or_throw",
    "statically_known_true",
)
"""Questions of torch's meta kernels about what may be a symbol: the answer is the argument, where it is a number."""
WORTH_SAYING = 0.01
"""Share of the state's bytes below which a change is not suggested."""


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
        owners: bytes by path of a run built on the meta device.
        transients: tries the phases out there, and returns the most bytes of tensors of each.
        config: the run's, with its budget.
        device: device on which the run will compute: its memory is counted.
        workers: bytes by path of the state of each process that computes besides.
        apart: whether the workers are on other machines.
        largest_message: bytes of the largest message between workers and the run.
        mapped: bytes by path of files that processes share through pages.
        here: phases that are the run's own, whoever computes the others.
        extra_bytes: bytes by phase that are in no tensor.

    Raises:
        ConfigError: a phase refuses the configuration.
    """
    phases = phase_bytes(transients, extra_bytes)
    # A worker does one phase at a time, so it needs the largest of those it takes part in, not their sum.
    worker_peak = max((size for phase, size in phases.items() if phase not in here), default=0)
    base = WORKER_BYTES + (RAY_BYTES if apart else 0)
    return Plan(
        owners={**owners, **({} if config.mirror is None else {OWNER: QUEUE_BYTES})},
        transients=phases,
        # On a card the process's own pages do not count.
        base_bytes=resident_bytes() + LATER_BYTES if device.type == "cpu" else 0,
        limits=device_limits(device),
        budget=config.budget_bytes,
        workers=[base + sum(state.values()) + worker_peak for state in workers],
        worker_owners=workers,
        worker_transients=worker_peak if workers else 0,
        apart=apart,
        largest_message=largest_message,
        mapped=mapped,
    )


def planned_use(
    what: str,
    owners: Mapping[str, int],
    transients: Mapping[str, int],
    *,
    budget: str | None,
    mapped: Mapping[str, int] = MappingProxyType({}),
) -> Plan:
    """Return the plan of a command that uses a trained policy, on this process's CPU.

    Args:
        what: the command.
        owners: bytes by path of the state that it allocates and keeps.
        transients: the most bytes of each of its phases, as `phase_bytes` finds them.
        budget: memory that the user allows, such as 2GiB.
        mapped: bytes by path of files that are read through pages.

    Raises:
        ConfigError: the budget is not an amount of memory.
    """
    return Plan(
        owners=owners,
        transients=transients,
        base_bytes=resident_bytes() + LATER_BYTES,
        limits=memory_limits(),
        budget=None if budget is None else parse_bytes(budget),
        mapped=mapped,
        what=what,
    )


Alternative = tuple[str, str, C]
"""Change to suggest, the first name in the paths of the owner that it makes smaller, and the changed configuration."""


def with_advice(
    plan: Plan,
    alternatives: Iterable[Alternative[C]],
    owners: Mapping[str, int],
    config_owners: Callable[[C], Mapping[str, int]],
) -> Plan:
    """Return the plan; where it does not fit, with changes that would make the largest owners smaller, and how small.

    Args:
        plan: plan of the configuration.
        alternatives: changes of the configuration; each is planned, not guessed.
        owners: bytes by path of the configuration.
        config_owners: returns the bytes by path of another configuration.
    """
    current = group_bytes(owners, depth=1)
    suggestions = []
    for change, group, smaller in () if plan.fits else alternatives:
        reduced = group_bytes(config_owners(smaller), depth=1)
        if current[group] - reduced[group] > WORTH_SAYING * sum(current.values()):
            suggestions.append(
                f"{change}: {group} would take {format_bytes(reduced[group])} instead of {format_bytes(current[group])}"
            )
    return replace(plan, suggestions=tuple(suggestions))


@dataclass(frozen=True)
class Knob:
    """A setting that makes an owner smaller: halved, it is suggested where a run does not fit."""

    setting: str
    """Name of the setting, with dots."""
    owner: str
    """First name in the paths of the owners that it makes smaller."""
    least: Callable[[Any], int] = lambda _: 1
    """Return the smallest value that the settings allow."""
    unit: Callable[[Any], int] = lambda _: 1
    """Return the number of which it must be a multiple."""


def smaller_settings(config: C, knobs: Iterable[Knob]) -> Iterator[Alternative[C]]:
    """Yield the settings with one knob turned down, for each that can be."""
    for knob in knobs:
        value = attrgetter(knob.setting)(config)
        unit = knob.unit(config)
        half = max(value // 2 // unit * unit, knob.least(config))
        if 0 < half < value:
            yield f"{knob.setting} = {half}", knob.owner, with_setting(config, knob.setting, half)


def with_setting(config: Any, name: str, value: object) -> Any:  # noqa: ANN401  (settings of any kind)
    """Return settings with another value of one of them, whose name has dots."""
    table, _, rest = name.partition(".")
    return replace(config, **{table: with_setting(getattr(config, table), rest, value) if rest else value})


def plan_built(
    config: Any,  # noqa: ANN401  (a RunConfig of any kind)
    device: torch.device,
    build: Callable[[Any], tuple[T, S]],
    transients: Callable[[T, S], Mapping[str, int]],
    alternatives: Iterable[Alternative[Any]],
) -> Plan:
    """Return the plan of a run in one process.

    Args:
        config: settings of the run.
        device: device of the run, whose memory counts.
        build: returns constants and state of a run with such settings, on the meta device.
        transients: tries out the phases of a run there, and returns the most bytes of tensors of each.
        alternatives: changes that may make it smaller.
    """
    setup, run = build(config)
    owners = nbytes(run)
    plan = make_plan(owners, lambda: transients(setup, run), config=config, device=device)

    @close_open_envs()  # else a run that starts all the same would keep them
    def config_owners(other: Any) -> Mapping[str, int]:  # noqa: ANN401  (a RunConfig of any kind)
        return nbytes(build(other)[1])

    return with_advice(plan, alternatives, owners, config_owners)


def device_limits(device: torch.device) -> dict[str, int]:
    """Return each limit on the memory where the state lies, in bytes that this process can come to."""
    if device.type == "cuda":
        # What this process has reserved is free to it.
        return {str(device): torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)}
    return memory_limits()


def phase_bytes(transients: Callable[[], Mapping[str, int]], extra_bytes: Mapping[str, int]) -> dict[str, int]:
    """Return the most bytes of each phase, tried out in a fork: modules that are imported there are gone with it.

    Args:
        transients: tries the phases out on the meta device, and returns the most bytes of tensors of each.
        extra_bytes: bytes by phase that are in no tensor.

    Autograd refuses to work in a fork once its threads for devices have begun: in a second run of one program on a GPU,
    and in torch's builds for CUDA without one too, after some exports. Its bytes on the host are not planned, so that
    what the phases import may stay.

    Raises:
        ConfigError: a phase cannot be tried out, with the reason that the fork gave.
    """
    bytes_or_reason = None if copy_unsafe_driver() else run_in_fork(lambda: _try_in_fork(transients))
    if bytes_or_reason is None:
        bytes_or_reason = _try_out(transients)
    if isinstance(bytes_or_reason, str):
        raise ConfigError(bytes_or_reason)
    return {phase: size + extra_bytes.get(phase, 0) for phase, size in bytes_or_reason.items()}


def _try_in_fork(transients: Callable[[], Mapping[str, int]]) -> dict[str, int] | str | None:
    """Return the result of `_try_out` in a fork; None where autograd refuses to work in one."""
    try:
        return _try_with_stand_ins(transients)
    except RuntimeError as error:
        if AUTOGRAD_REFUSES_FORK not in str(error):
            raise
        return None


def _try_with_stand_ins(transients: Callable[[], Mapping[str, int]]) -> dict[str, int] | str:
    """Return the result of `_try_out` without an import of torch's compiler and of sympy, where torch lets it."""
    # In a fork of this process, which ends when the answer is given.
    # Kernels of the meta device import torch's compiler, only to tell it to leave them alone (0.8 CPU seconds and
    # 46 MB), and sympy, only to ask whether sizes are symbols (0.7): here sizes are numbers, so the answers are known.
    # Stand-ins give them. They would break a compiler that is used later, so they must not reach the parent.
    needed: dict[str, dict[str, Any]] = {
        "torch._dynamo": {"disable": lambda kernel, *_, **__: kernel},
        "torch.fx.experimental.symbolic_shapes": dict.fromkeys(HINTS, lambda size, *_, **__: size)
        | {"is_nested_int": lambda _: False, "has_guarding_hint": lambda _: True, "free_unbacked_symbols": lambda _: ()}
        | {"sym_and": lambda *answers: all(answers), "sym_or": lambda *answers: any(answers), "sym_eq": _are_equal},
        "sympy": {"Basic": type("Basic", (), {})},
    }
    stand_ins = {name: ModuleType(name) for name in needed if name not in sys.modules}
    for name, module in stand_ins.items():
        vars(module).update(needed[name])
    if compiler := stand_ins.get("torch._dynamo"):
        vars(torch)["_dynamo"] = compiler
    sys.modules.update(stand_ins)
    try:
        return _try_out(transients)
    except (AttributeError, ImportError):  # another version of torch, or the user's code, asks for more than they have
        for name in stand_ins.keys() - {"torch._dynamo"}:
            del sys.modules[name]
        return _try_out(transients)


def _are_equal(one: object, other: object) -> bool:
    """Whether sizes are equal, in a list or in a tuple."""
    return (tuple(one) if isinstance(one, list) else one) == (tuple(other) if isinstance(other, list) else other)


def _try_out(transients: Callable[[], Mapping[str, int]]) -> dict[str, int] | str:
    """Return the bytes of each phase; or why the user's own part of it is refused."""
    try:
        return {phase: int(KERNELS * size) for phase, size in transients().items()}
    except ConfigError as error:
        return str(error)


def refuse_unfit(plan: Plan, config: RunConfig) -> None:
    """Refuse a run by its plan, before anything of it is allocated.

    Raises:
        MemoryLimitError: the plan does not fit the budget, and the settings do not ask to start anyway; or a machine
            has no space for a worker.
    """
    if config.start_over_budget:
        refuse_nodes(plan.nodes)
    else:
        refuse(plan)


def allocate_planned(build: Callable[[], T], plan: Plan) -> T:
    """Return the state that `build` allocates.

    Raises:
        MemoryLimitError: the system refuses the memory; names the run's largest owners.
    """
    try:
        return build()
    except RuntimeError as error:  # torch has no error of its own for a CPU's memory
        if "allocate memory" not in str(error):
            raise
        raise MemoryLimitError(f"the system refuses to allocate the memory of the run. {plan_text(plan)}") from error


@dataclass(frozen=True)
class CheckedConfig:
    """Configuration with which a run can start on this machine."""

    config: Any
    """The settings, a RunConfig of any kind, in the form in which they are kept."""
    taken: frozenset[str]
    """Names of the runs that lie below its mirror's URL."""
    callbacks: Callbacks


def check_machine(config: Any, *, trains: bool = True) -> None:  # noqa: ANN401  (a RunConfig of any kind)
    """Check that the programs are here which the settings ask for: trackers, the command for events, a compiler.

    Args:
        config: the settings.
        trains: whether a run will train here; nothing else needs the compiler.
    """
    check_trackers(config)
    check_command(config.on_event)
    values = (getattr(config, each.name) for each in fields(config))
    compiles = any(isinstance(value, PPOConfig | AlgorithmConfig) and value.compile for value in values)
    # The machines of a cluster have compilers of their own, and a GPU's code is not C++.
    is_elsewhere = isinstance(config, WorkersRunConfig) and config.cluster
    if trains and compiles and not is_elsewhere and find_device(config.device).type == "cpu":
        require_compiler()


def check_settings(config: Any, functions: Callbacks = NO_CALLBACKS, *, trains: bool = True) -> CheckedConfig:  # noqa: ANN401  (a RunConfig of any kind)
    """Check the settings against this machine and others; data and memory are checked where the run is planned.

    Args:
        config: the settings.
        functions: functions that are given in Python.
        trains: whether a run will train here, rather than be planned alone.
    """
    check_machine(config, trains=trains)
    callbacks = find_callbacks(config, functions)
    if config.from_run is not None and not is_url(config.from_run):
        config = replace(config, from_run=str(Path(config.from_run).absolute()))
    return CheckedConfig(recipe_of_config(config).prepare(config), taken_names(config.mirror), callbacks)


@close_open_envs()
def checked_plan(config: Any, *, trains: bool = True) -> tuple[CheckedConfig, Plan]:  # noqa: ANN401  (a RunConfig of any kind)
    """Return checked settings, and the plan of a run with them; nothing is allocated.

    Args:
        config: the settings.
        trains: whether the run will train here.
    """
    checked = check_settings(config, trains=trains)
    return checked, recipe_of_config(config).plan(checked.config)
