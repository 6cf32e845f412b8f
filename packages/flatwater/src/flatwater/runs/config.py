"""Settings of every run besides its training: length, machine, memory, and files to keep."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeVar, cast

from flatwater.checkpoints.config import CheckpointConfig
from flatwater.config.arguments import read_arguments
from flatwater.config.code import Code, EnvArguments
from flatwater.metrics.config import WandbConfig
from flatwater.own_numbers import MAXIMUM_NAME
from flatwater.storage.objects import check_url, is_url
from flatwater_watch.errors import ConfigError, require
from flatwater_watch.options.bounds import Bounds, Number, OptionalNumber, Workers
from flatwater_watch.sanitize import escape_controls, short_repr
from flatwater_watch.units import parse_bytes


@dataclass(frozen=True, kw_only=True)  # without slots, as it is the second base of each kind's configuration
class RunConfig:
    """The settings that runs of all kinds share."""

    changeable_settings: ClassVar = frozenset(
        (
            "rounds",
            "total_steps",
            "checkpoints",
            "ledger_every",
            "budget",
            "start_over_budget",
            "trackers",
            "wandb",
            "mirror",
            "trainer",
            "tag",
            "on_event",
            "from_run",
            "on_round",
        )
    )
    """Names of settings that may change at a resume, as they change no number of the training."""
    former_tables: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Settings by table that runs of earlier versions do not have, with the values by which these runs went on."""
    absent: ClassVar = (
        dict.fromkeys(
            ("workers", "cluster", "any_machine"),
            "this recipe computes in one process: workers share networks that grow (`train grow`), "
            "or the members of a population of traders (`train erl`). Here updates of a policy, or of a few small "
            "members, take milliseconds each, and workers would wait for them. "
            "Train several runs at once instead: flatwater sweep --at-once N",
        )
        | dict.fromkeys(
            ("total_steps", "on_episode", "info_keys"),
            "this recipe plays no episodes of an environment one by one, as ppo, teach and evolve do. "
            "Use rounds and on_round",
        )
        | {"preset": "this recipe has no presets; ppo, dqn, sac, td3 and ddpg have. Give single settings, or --config"}
    )
    """Message by name of a setting that a recipe does not have, for a user who gives it."""

    trainer: str = ""
    """What the run trains: the name of its recipe, by which `flatwater resume` finds it."""
    rounds: Number = 20
    """Rounds in all; `flatwater resume RUN --rounds N` goes on to N."""
    device: str = "cpu"
    """Where the run computes: cpu, cuda or cuda:1."""
    threads: Annotated[int, Bounds(0, 1024)] = 0
    """Torch threads. 0 takes the cores that are free at the start; the number is then kept for resuming, because sums
    in another order differ in their last bit."""
    budget: str | None = None
    """Memory that the run may take, such as 8GiB. A run that would need more does not start; a run that comes to 95 %
    of it stops with a checkpoint. Left out: 90 % of what the machine, the container and the shell allow."""
    start_over_budget: bool = False
    """Start although the plan does not fit: the run then stops when it comes to its budget."""
    trackers: tuple[Annotated[str, Code(training_only=True)], ...] = ("tensorboard",)
    """Trackers that also get each round's numbers: `tensorboard`, `wandb`, package.module:Class of your own, several or
    none. If one fails or hangs, the run says so once and goes on."""
    wandb: WandbConfig = field(default_factory=WandbConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    from_run: str | None = None
    """Run with whose weights this run begins: its folder, or the URL at which it is mirrored. Networks are taken, with
    the statistics by which their inputs are normalised, and nothing else. Left out: random weights."""
    ledger_every: OptionalNumber = 0
    """Measure memory after every n-th round, and the last. 0 measures as often as an eighth of a percent of the time
    allows: after the first four rounds, the last, and others at least every 30 s."""
    mirror: str | None = None
    """Where each checkpoint and the run's records are sent in the background, so that they outlive this machine:
    s3://bucket/path, gs://bucket/path, az://container/path or file:///path; the run gets a folder of its name there."""

    tag: tuple[str, ...] = ()
    """Words by which `flatwater runs --tag` finds the run again."""
    on_round: Annotated[str | None, Code(training_only=True)] = None
    """Function of yours that hears of each round, as package.module:function: its argument has the round's numbers, and
    `log(name, value)` adds one of your own to them. Left out: none."""
    on_event: Annotated[str | None, Code(every_value=True, training_only=True)] = None
    """Command that gets a JSON object on stdin at the run's end or failure, at an alarm, a finding, or the budget; it
    has 10 seconds. Pipes and variables need a shell: "sh -c '...'". Left out: none."""

    def __post_init__(self) -> None:
        """Check conditions that the bounds of single fields do not cover."""
        check_run(self)

    @property
    def first_measured(self) -> int:
        """Number of the first round that has the metric by which the run is judged."""
        return 1

    @property
    def budget_bytes(self) -> int | None:
        """The budget in bytes, or None if the user gave none.

        Raises:
            ConfigError: the budget is not an amount of memory.
        """
        try:
            return None if self.budget is None else parse_bytes(self.budget)
        except ConfigError as error:
            raise ConfigError(
                f"budget = {short_repr(self.budget)}: expected an amount of memory, such as 8GiB"
            ) from error


def explain_renamed_settings(**settings: str) -> dict[str, str]:
    """Return a message for each name of an earlier version or another library; `old_name=` the setting in its place."""
    return {name: f"no setting has this name: expected {setting}" for name, setting in settings.items()}


@dataclass(frozen=True, kw_only=True)
class EpisodesRunConfig(RunConfig):
    """Settings of runs that play episodes of an environment, in addition to those of all runs."""

    changeable_settings: ClassVar = RunConfig.changeable_settings | {"allow_nan", "env_workers"}
    absent: ClassVar = RunConfig.absent | explain_renamed_settings(
        total_timesteps="total_steps",
        env_kwargs="env_args",
        verbose="nothing, as a run tells all it does; --quiet (quiet=True in Python) keeps it silent",
        tensorboard_log="trackers, which have tensorboard unless you name others",
    )
    place: ClassVar[str] = "env"
    """Name of the setting that names the environment."""
    plays_turns: ClassVar[bool] = False
    """Whether the recipe learns games in turns, by self-play; its settings then have a table `opponents`."""
    plays_kinds: ClassVar[bool] = False
    """Whether the recipe learns a policy for each kind of agents, where agents have different spaces."""

    total_steps: OptionalNumber = 0
    """Environment steps in all, those of all copies together: as many whole rounds as reach them, whatever `rounds`
    says. 0 leaves it to `rounds`."""
    on_episode: Annotated[str | None, Code(training_only=True)] = None
    """Function of yours that hears of each finished episode of training, as package.module:function: its argument has
    the episode's returns, length, seed and last info; of what it gives `log(name, value)` each round has the mean. Left
    out: none."""
    info_keys: tuple[str, ...] = ()
    """Keys of the info of an episode's last step whose mean over the finished episodes each round has, as
    `info/is_success`."""
    env_args: EnvArguments = ()
    """Arguments of the environment: gravity=0.5 map_name=8x8. Numbers, texts, true, false, none, and lists and dicts as
    Python writes them."""
    env_workers: Annotated[int, Bounds(0, 1 << 10)] = 0
    """Processes that step the environments, and as many for those of evaluations: for steps that take a millisecond or
    more. Any number gives the same run. 0 steps them in this process."""

    def __post_init__(self) -> None:
        """Check conditions that the bounds of single fields do not cover, and set `rounds` from `total_steps`."""
        check_episodes_run(self)

    @property
    def env_name(self) -> str:
        """Name of the environment."""
        return str(getattr(self, self.place))

    @property
    def steps_per_round(self) -> int:
        """Number of environment steps of a round, in all copies of the environment together.

        Raises:
            ConfigError: the recipe does not know its steps.
        """
        raise ConfigError("total_steps: this recipe does not say how many steps a round has. Give rounds")

    @property
    def reports_episodes(self) -> bool:
        """Whether the user wants numbers of finished episodes."""
        return bool(self.info_keys) or self.on_episode is not None


@dataclass(frozen=True, kw_only=True)  # without slots, as it is the last base of a kind's configuration
class PresetSettings:
    """Settings of runs that can begin with those of a preset."""

    preset: str | None = None
    """Preset whose settings for this environment are taken in place of the defaults: zoo, those of RL Baselines3 Zoo.
    All that is given besides it, in --config too, wins over it. Left out: none."""


@dataclass(frozen=True, kw_only=True)
class WorkersRunConfig(RunConfig):
    """Settings of runs that worker processes can compute, in addition to those of all runs."""

    changeable_settings: ClassVar = RunConfig.changeable_settings | {"workers", "cluster", "any_machine"}

    threads: Annotated[int, Bounds(0, 1024)] = 1
    """Torch threads of each process. More than one help where members are much work and nothing else runs: besides
    other work threads wait for each other, and workers do not. 0 takes the cores that are free at the start; the number
    is kept for resuming, because sums in another order differ in their last bit."""
    workers: Workers = 1
    """Processes that compute, each with `threads` threads of its own; auto takes one for each core that is free at the
    start. Any number gives the same run. More processes than tiles of members have nothing to do."""
    cluster: Annotated[str | None, Code(every_value=True, training_only=True)] = None
    """Ray cluster whose machines the workers compute on: auto for the cluster that this machine belongs to, or its
    address. Needs the extra `ray`. Left out: this machine."""
    any_machine: bool = False
    """Take workers on processors whose arithmetic is another than here. The run is then not the same, bit for bit, as
    in one process, and its checkpoints and report name the arithmetics that it was computed with."""


C = TypeVar("C", bound=RunConfig)
E = TypeVar("E", bound=EpisodesRunConfig)
T = TypeVar("T")
MAXIMUM_KEY = MAXIMUM_NAME - len("info/")
"""Most bytes of a key in `info_keys`, as a metric's name has `info/` before it."""


def drop_total_steps(config: T, names: Collection[str]) -> T:
    """Return the settings; if the user gives `rounds` now, without `total_steps`, which would set `rounds` again.

    Args:
        config: the settings.
        names: names of the settings that the user gives now.
    """
    if "rounds" not in names or not isinstance(config, EpisodesRunConfig):
        return config
    return cast("T", replace(config, total_steps=0))  # 0: left out


def settings_without_env_workers(config: E) -> E:
    """Return the settings with no processes for environments: for worlds that are only asked for spaces, or tested."""
    return replace(config, env_workers=0)


def extend_mirror_url(config: C, folder: Path) -> C:
    """Return the configuration of a run in a sweep's or a study's folder, with the folder's name added to its mirror.

    Runs of different sweeps have the same names, and would overwrite each other at one URL.
    """
    if config.mirror is None:
        return config
    # The absolute path, as the relative path `.` has no name.
    return replace(config, mirror=f"{config.mirror.rstrip('/')}/{folder.absolute().name}")


def check_workers_run(config: WorkersRunConfig) -> None:
    """Check the settings of workers, and those that all runs share."""
    check_run(config)
    if config.workers != 1:
        # Workers get the state as NumPy arrays, which lie in the CPU's memory.
        reason = f"with workers = {config.workers}, which compute on the CPU. Use --workers 1"
        require(config.device == "cpu", "device", config.device, f"cpu {reason}")
    # A single worker is the run's own process, which is on this machine.
    expected = "none with one worker. Give --workers, or --cluster '' at a resume"
    require(not config.cluster or config.workers != 1, "cluster", config.cluster, expected)


def check_episodes_run(config: EpisodesRunConfig) -> None:
    """Check the settings of a run that plays episodes; if `total_steps` is given, set `rounds` from it."""
    check_run(config)
    read_arguments(config.env_args, "env_args")
    keys = config.info_keys
    # `escape_controls` changes a text that has control characters.
    are_names = all(key.strip() and escape_controls(key) == key and len(key.encode()) <= MAXIMUM_KEY for key in keys)
    expected = f"keys of an info in plain text, of at most {MAXIMUM_KEY} bytes, each once"
    require(are_names and len(keys) == len(set(keys)), "info_keys", [*keys], expected)
    if config.total_steps:
        # Set in the frozen object, before anybody reads it: the steps in rounds, rounded up.
        object.__setattr__(config, "rounds", -(-config.total_steps // config.steps_per_round))


def check_run(config: RunConfig) -> None:
    """Check the settings that all runs share, apart from the bounds of single fields."""
    # `budget_bytes` itself refuses a text that is no amount.
    require(config.budget_bytes != 0, "budget", config.budget, "an amount of memory, such as 8GiB")
    require(
        len(config.trackers) == len(set(config.trackers)), "trackers", config.trackers, "names of trackers, each once"
    )
    # Tags are printed on terminals and in pages: a control character in one could rewrite what stands around it.
    all_plain = all(tag.strip() == tag != "" and escape_controls(tag) == tag for tag in config.tag)
    require(all_plain and len(config.tag) == len(set(config.tag)), "tag", config.tag, "words, each once")
    require(config.mirror is None or is_url(config.mirror), "mirror", config.mirror, "a URL such as s3://bucket/path")
    if config.mirror is not None:
        check_url(config.mirror)
