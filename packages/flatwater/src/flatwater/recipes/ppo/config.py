"""Settings of `flatwater train ppo`, and `BlocksRunConfig`, which the recipe `teach` shares."""

from typing import Annotated, ClassVar, Literal

from flatwater.algorithms.on_policy_config import PpoLearnerConfig
from flatwater.config.code import EnvName
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.nets.config import ActorCriticConfig
from flatwater.runs.config import EpisodesRunConfig, PresetSettings, check_episodes_run, explain_renamed_settings
from flatwater.trainers.blocks.config import BlocksConfig, OpponentsConfig
from flatwater_watch.options.bounds import Bounds, Number, OptionalNumber
from flatwater_watch.options.declare import config


@config
class BlocksRunConfig(EpisodesRunConfig, BlocksConfig):
    """A policy that learns from blocks of steps, with a teacher or without."""

    absent: ClassVar = (
        EpisodesRunConfig.absent
        | explain_renamed_settings(
            student="policy, such as policy.layers",
            n_envs="envs",
            num_envs="envs",
            n_steps="block, the steps of each environment in a round",
            n_epochs="learner.epochs",
            batch_size="learner.minibatches, their number in a block",
            learning_rate="learner.lr",
            ent_coef="learner.entropy_weight",
            vf_coef="learner.value_weight",
            clip_range="learner.clip",
            gae_lambda="learner.lam",
            max_grad_norm="learner.grad_clip",
            net_arch="policy.layers",
            policy_kwargs="policy, such as policy.layers and policy.activation",
        )
        | {
            "population": "this recipe trains one policy. dqn, sac, td3, ddpg and erl --env evolve a population: "
            "flatwater train dqn --population.size 4",
            "replay": "this recipe learns from blocks of steps. dqn, sac, td3, ddpg and erl --env have a replay: "
            "flatwater train dqn --replay.capacity 100000",
        }
    )

    def __post_init__(self) -> None:
        BlocksConfig.__post_init__(self)
        check_episodes_run(self)

    @property
    def steps_per_round(self) -> int:
        """Environment steps of a block."""
        return self.block * self.envs

    @property
    def first_measured(self) -> int:
        """First round with an evaluation."""
        return self.evaluation.every


@config(table="wrapped")
class PpoWrappedConfig(WrappedConfig):
    """Copies of an environment of Gymnasium or PettingZoo, or of a class of your own."""

    steps: OptionalNumber = 0  # the environment's own limit


@config(table="policy")
class FeedForwardConfig(ActorCriticConfig):
    """Policy and critic of all agents: layers, a table of tokens if observations are tokens, an LSTM if wanted."""

    memory: Annotated[int, Bounds(0, 1 << 16)] = 0
    observations: Literal["plain", "logs", "stretched", "normalised"] = "stretched"


@config
class PpoRunConfig(BlocksRunConfig, PresetSettings):
    """A policy that learns by itself, from its own actions."""

    plays_turns: ClassVar = True
    plays_kinds: ClassVar = True

    trainer: Literal["ppo"] = "ppo"
    """The recipe, by which `flatwater resume` knows the run."""
    rounds: Number = 100
    """Blocks in all; `flatwater resume RUN --rounds N` goes on to N."""
    env: EnvName = "CartPole-v1"
    """An ID of Gymnasium, pettingzoo:ID, pettingzoo:MODULE, forage, or package.module:Name of a class or function that
    makes an environment or a world of yours."""
    opponents: OpponentsConfig = OpponentsConfig()
    wrapped: PpoWrappedConfig = PpoWrappedConfig()
    policy: FeedForwardConfig = FeedForwardConfig()
    learner: PpoLearnerConfig = PpoLearnerConfig()
