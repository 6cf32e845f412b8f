"""The plan of a run of growing networks: bytes of its state and its phases, from a build on the meta device."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from flatwater.cluster.work_division import Span
from flatwater.envs.growing.own_host import torch_error_text
from flatwater.envs.growing.pool import GrowingEnvs, sub_pool
from flatwater.envs.growing.simulator import measure_hosts_, train_hosts_
from flatwater.envs.growing.stream import image_numbers
from flatwater.envs.growing.task import load_task
from flatwater.memory.nodes import worker_capacity
from flatwater.memory.planner import Plan
from flatwater.recipes.grow.config import GrowRunConfig, split_environments
from flatwater.runs.planning import META, Alternative, Knob, make_plan, smaller_settings, with_advice, with_setting
from flatwater.runs.team import place_workers
from flatwater.state.tree import nbytes
from flatwater.trainers.grow.state import GrowSetup, GrowState, build_grow, build_share, env_rows
from flatwater.trainers.on_policy import bind_learning
from flatwater_watch.errors import ConfigError
from flatwater_watch.meters.process import free_cores
from flatwater_watch.meters.torch_ops import peak_bytes
from flatwater_watch.sanitize import short_repr


def plan_grow(config: GrowRunConfig, device: torch.device) -> Plan:
    """Return the plan of a run with this configuration, and settings to change if it does not fit.

    Args:
        config: configuration of the run; `budget` is taken from it.
        device: device of the run, whose memory counts.
    """
    setup, run = build_on_meta(config)
    owner_bytes = nbytes(run)
    env_shares = environment_shares(config)
    plan = make_plan(
        owner_bytes,
        lambda: measure_phase_peaks_(setup, run) | (message_bytes(run) if env_shares else {}),
        config=config,
        device=device,
        workers=[nbytes(build_share(setup, run.envs.task, high - low)) for low, high in env_shares],
        apart=bool(config.cluster),
        largest_message=largest_message(run, env_shares),
    )
    if plan.apart and env_shares:
        plan = place_workers(plan, config)
        capacity = worker_capacity(plan.nodes)
        # With `workers = auto` the plan is made again for the number of workers that the cluster has memory for.
        if not isinstance(config.workers, int) and capacity < len(env_shares):
            return plan_grow(replace(config, workers=max(1, capacity)), device)

    def smaller_owner_bytes(smaller_config: GrowRunConfig) -> dict[str, int]:
        """Return the bytes of each owner in a run with a smaller setting."""
        _setup, smaller_run = build_on_meta(smaller_config)
        return nbytes(smaller_run)

    return with_advice(plan, _alternatives(config), owner_bytes, smaller_owner_bytes)


def environment_shares(config: GrowRunConfig) -> list[Span]:
    """Return the span of environments of each worker; empty if this process computes them without workers."""
    workers = config.workers
    if not isinstance(workers, int):  # auto; on a cluster `plan_grow` takes as many as have memory there
        workers = len(config.groups) if config.cluster else free_cores()
    shares = split_environments(config, workers)
    return shares if len(shares) > 1 else []


def build_on_meta(config: GrowRunConfig) -> tuple[GrowSetup, GrowState]:
    """Return constants and state of the run on the meta device: shapes, which take no memory."""
    task = load_task(config.task, META)
    setup = GrowSetup(config, META, task.image_shape)
    return setup, build_grow(setup, task)


def measure_phase_peaks_(setup: GrowSetup, run: GrowState) -> dict[str, int]:
    """Return the peak temporary bytes of each phase, counted on the meta device.

    Runs parts of a round on `run`, and cuts its updates to a few: pass a state that is thrown away.

    Raises:
        ConfigError: the user's host cannot leave the CPU.
    """
    # The largest group is measured: groups are computed one after the other.
    largest_span = max(setup.config.groups, key=lambda span: span[1] - span[0])
    group = sub_pool(run.envs, *largest_span)
    learn_ = bind_learning(setup, run)

    def train_and_measure() -> None:
        """Train and validate the hosts; other parts of a step work in chunks, or on a few numbers for each host."""
        train_hosts_(group)
        measure_hosts_(group)

    # Counted for all updates of a step, before `_limit_updates_` leaves a few of them.
    number_bytes = _image_number_bytes(group)
    _limit_updates_(group)
    try:
        step_bytes = number_bytes + peak_bytes(train_and_measure)
    except RuntimeError as error:
        if setup.config.host is None:
            raise
        raise ConfigError(
            f"host = {short_repr(setup.config.host)}: the forward runs on the CPU only: {torch_error_text(error)}. "
            "Make new tensors on the device of the input, as in torch.arange(n, device=x.device), and constants with "
            "register_buffer"
        ) from error
    # Update 0 also computes the round's targets; the last one's statistics take no more than an update.
    update_bytes = peak_bytes(lambda: learn_(0))
    # Baselines and the evaluation play the same steps as collecting.
    return {"baselines": step_bytes, "collect": step_bytes, "update": update_bytes, "evaluate": step_bytes}


def message_bytes(run: GrowState) -> dict[str, int]:
    """Return the bytes, as the phase `exchange`, of the pool's rows that arrive in messages from workers."""
    return {"exchange": sum(leaf.nbytes for _, leaf in env_rows(run.envs, run.memory))}


def largest_message(run: GrowState, shares: Sequence[Span]) -> int:
    """Return the bytes of the largest message to a worker: the state with which a replaced worker goes on.

    The state has the policy, the worker's rows of the pool, and the record of hosts without growth that rewards compare
    with. Without workers there is no message: 0.
    """
    if not shares:
        return 0
    policy_bytes = sum(leaf.nbytes for leaf in run.learner.weights)
    row_bytes = message_bytes(run)["exchange"] // len(run.seeds)
    ungrown = run.envs.alone
    largest_share = max(high - low for low, high in shares)
    return row_bytes * largest_share + policy_bytes + ungrown.accuracy.nbytes + ungrown.hosts.nbytes


TRIAL_UPDATES = 8
"""Most updates of a step that are tried out: they are alike, and thousands would take minutes."""


def _limit_updates_(envs: GrowingEnvs) -> None:
    """Let a step of the hosts make `TRIAL_UPDATES` updates at most; for a plan alone, whose hosts are thrown away."""
    updates = min(envs.config.fit.updates, TRIAL_UPDATES)
    envs.config = replace(envs.config, fit=replace(envs.config.fit, updates=updates))


def _image_number_bytes(envs: GrowingEnvs) -> int:
    """Return the peak bytes of drawing the image numbers of all updates of a step.

    0 with at most `TRIAL_UPDATES` updates: the measured step then draws all numbers, so they are counted with it.
    """
    fit, images = envs.config.fit, len(envs.task.train_labels)
    if fit.updates <= TRIAL_UPDATES:
        return 0
    total = fit.updates * fit.batch_size
    return peak_bytes(lambda: image_numbers(envs.seed, envs.drawn, count=total, images=images))


KNOBS = (
    Knob("envs", "envs", unit=lambda config: config.learner.minibatches),
    Knob("env.steps", "rollout"),
)


def _alternatives(config: GrowRunConfig) -> Iterator[Alternative[GrowRunConfig]]:
    """Yield settings with smaller values: the change as text, the owner that shrinks, and the configuration."""
    yield from smaller_settings(config, KNOBS)
    host = config.env.host
    if config.host is None and host.kind == "conv" and min(host.channels) >= 4:  # noqa: PLR2004  (half of them are even, and two or more)
        # Half, rounded down to an even number, as the norms have two groups.
        channels = [width // 4 * 2 for width in host.channels]
        yield f"env.host.channels = {channels}", "envs", with_setting(config, "env.host.channels", tuple(channels))
