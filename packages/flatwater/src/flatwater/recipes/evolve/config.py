"""Settings of runs that train a population in an environment.

`MembersRunConfig` is for any algorithm, `EvolveRunConfig` for the recipe `evolve`.
"""

from dataclasses import field
from typing import ClassVar, Literal

from flatwater.config.code import EnvName
from flatwater.runs.config import EpisodesRunConfig, check_episodes_run, explain_renamed_settings
from flatwater.trainers.evolve.config import EvolveConfig, PolicyLearnerConfig
from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Number
from flatwater_watch.options.declare import config


@config
class MembersRunConfig(EpisodesRunConfig, EvolveConfig):
    """Members in an environment, whatever their algorithm."""

    absent: ClassVar = EpisodesRunConfig.absent | explain_renamed_settings(
        envs="population.envs",
        n_envs="population.envs",
        num_envs="population.envs",
        buffer_size="replay.capacity",
        learning_starts="replay.warmup",
        train_freq="learner.train_every",
        gradient_steps="learner.updates",
        batch_size="learner.batch_size",
        learning_rate="learner.actor_lr and learner.critic_lr, or learner.lr of dqn",
        net_arch="net.hidden and net.layers",
        policy="net",
    )
    player: ClassVar[str] = "champion"
    """Row of the trained policy in a result."""
    env: EnvName = "Pendulum-v1"
    """An ID of Gymnasium, pettingzoo:MODULE with one agent, or package.module:Name of a class or function that makes an
    environment or a world of yours. Actions are numbers within bounds; for dqn they are a choice from a
    list."""

    @property
    def steps_per_round(self) -> int:
        """Environment steps of a generation."""
        return self.steps * self.population.size * self.population.envs

    @property
    def total_updates(self) -> int:
        """Updates of each member in all rounds: those after the warm-up, every `learner.train_every` steps."""
        envs, learner = self.population.size * self.population.envs, self.learner
        # The step after which the replay holds `warmup` transitions: updates due at earlier steps are left out.
        warmup_step = -(-self.replay.warmup // envs)  # `-(-a // b)` divides and rounds up
        all_due = self.rounds * self.steps // learner.train_every
        due_in_warmup = max(0, warmup_step - 1) // learner.train_every
        return max(0, all_due - due_in_warmup) * int(learner.own.updates)

    def __post_init__(self) -> None:
        """Check the run's settings, and that the replay has space for each environment."""
        check_episodes_run(self)
        envs = self.population.size * self.population.envs
        # The replay has a stream for each environment, and each stream holds one transition at least.
        expected = f"at least {envs}, a transition for each of the population.size x population.envs environments"
        require(self.replay.capacity >= envs, "replay.capacity", self.replay.capacity, expected)


@config
class EvolveRunConfig(MembersRunConfig):
    """A population of policies, evolved in an environment."""

    trainer: Literal["evolve"] = "evolve"
    """The recipe, by which `flatwater resume` knows the run."""
    rounds: Number = 10
    """Generations in all; `flatwater resume RUN --rounds N` goes on to N."""
    learner: PolicyLearnerConfig = field(default_factory=PolicyLearnerConfig)
