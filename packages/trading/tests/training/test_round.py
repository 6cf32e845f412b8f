"""The laws of one generation: fair comparison, an honest champion, a population that never changes its size."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from trees import leaf_copies
from trees import restore_ as copied_back_
from watchers import Silent, phase_

from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.reader import newest_intact, restore_state_
from flatwater.checkpoints.writer import save_checkpoint
from flatwater.state.tree import Leaf, leaves
from flatwater.trainers.loop import train_
from flatwater_trading.market.results import fitness
from flatwater_trading.market.simulator import build_simulator
from flatwater_trading.recipe.run import ErlRun
from flatwater_trading.training.play import play_slices_

Composed = Callable[..., ErlRun]
Trained = Callable[..., tuple[ErlRun, list[dict[str, float]]]]


def digest(run: object) -> str:
    """One hash of every leaf that a checkpoint would hold, and of its path."""
    found = hashlib.sha256()
    for leaf in leaves(run):
        if not leaf.derived:
            found.update(leaf.path.encode() + content(leaf))
    return found.hexdigest()


def content(leaf: Leaf) -> bytes:
    value = leaf.value.get_state() if isinstance(leaf.value, torch.Generator) else leaf.value
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode()


def value_alone(composition: ErlRun, weights: torch.Tensor, starts: torch.Tensor) -> float:
    """A trader's validation value, played by itself in a simulator of its own, one slice after the other."""
    setup, run = composition.setup, composition.trainer.run
    env, days = setup.config.env, setup.config.env.episode.days
    found = []
    for start in starts.unbind():
        sim = build_simulator(env, batch=1, max_days=days, instruments=len(run.market.investable), device=setup.device)
        play_slices_(setup, run.market, sim, actors=weights.clone()[None], starts=start[None], days=days)
        found.append(float(fitness(sim, env)))
    return sum(sorted(found)[: setup.config.evaluation.lowest]) / setup.config.evaluation.lowest


def test_all_members_play_the_same_slices_inside_their_split(train_run: Trained) -> None:
    composition, _ = train_run(3)
    run, setup = composition.trainer.run, composition.setup
    for env, members, days in (
        (run.eval_env, 4, setup.splits.train),
        (run.val_env, 5, setup.splits.validation),
    ):
        for rows in (env.start, env.trading_end, env.end):
            by_member = rows.view(members, 2)
            assert (by_member == by_member[0]).all()
        assert days.first <= int(env.start.min())
        assert int(env.end.max()) <= days.stop
        assert (env.end - env.start == 20).all()
        assert (env.trading_end - env.start == 15).all()


def test_slices_are_others_in_every_generation(compose_run: Composed) -> None:
    composition = compose_run()
    run, seen = composition.trainer.run, set()
    for generation in range(8):
        run.progress.round = generation
        phase_(composition.trainer, "evaluate")
        seen.add(tuple(run.eval_env.start.view(4, 2)[0].tolist()))
    assert len(seen) > 4


@pytest.mark.long
def test_every_training_slice_can_be_drawn_and_no_other(compose_run: Composed) -> None:
    composition = compose_run({"splits.validation_days": 150, "splits.holdout_days": 65, "panel": "synthetic:2x260"})
    days, run = composition.setup.splits.train, composition.trainer.run
    assert (days.first, days.stop) == (19, 45)
    drawn = set()
    for generation in range(40):
        run.progress.round = generation
        phase_(composition.trainer, "evaluate")
        drawn |= {*run.eval_env.start.tolist()}
    assert drawn == set(range(19, 45 - 20 + 1))


@pytest.mark.long
def test_the_champion_is_scored_again_and_beaten_only_on_the_same_slices(compose_run: Composed) -> None:
    """Each trader's value is found again by playing it alone; the champion's weights follow from these values."""
    composition = compose_run({"seed": 3})
    run = composition.trainer.run
    champion, crowned, shaken = None, [], torch.Generator().manual_seed(0)
    for generation in range(6):
        run.progress.round = generation
        phase_(composition.trainer, "evaluate")
        members = run.learner.actor[:-1].clone()
        phase_(composition.trainer, "validate")
        starts = run.val_env.start.view(5, 2)[0]
        values = [value_alone(composition, weights, starts) for weights in members]
        torch.testing.assert_close(run.scores.validation[:-1], torch.tensor(values), rtol=1e-4, atol=1e-3)

        best = int(np.argmax(values))
        held = None if champion is None else value_alone(composition, champion, starts)
        beaten = held is None or values[best] > held
        crowned.append(beaten)
        champion = members[best] if beaten else champion
        assert champion is not None
        assert bool(run.scores.crowned) == beaten
        assert torch.equal(run.learner.actor[-1], champion)
        worth = values[best] if held is None or beaten else held
        assert float(run.scores.champion_value) == pytest.approx(worth, rel=1e-4, abs=1e-3)
        run.learner.actor[:-1] += 0.3 * torch.randn(members.shape, generator=shaken)
    assert crowned[0]
    assert {True, False} <= {*crowned[1:]}, "the seed must show both a champion beaten and one that stays"


def test_an_equal_does_not_beat_the_champion(compose_run: Composed) -> None:
    composition = compose_run()
    run = composition.trainer.run
    phase_(composition.trainer, "validate")
    run.learner.actor[:-1] = run.learner.actor[-1]
    born = run.lineage.born[-1].clone()
    phase_(composition.trainer, "validate")
    assert (run.scores.validation == run.scores.validation[-1]).all()
    assert not run.scores.crowned
    assert torch.equal(run.lineage.born[-1], born)


def test_the_champion_is_chosen_on_validation_not_on_fitness(compose_run: Composed) -> None:
    composition = compose_run()
    run = composition.trainer.run
    phase_(composition.trainer, "evaluate")
    run.scores.fitness.copy_(torch.tensor([1e6, 0.0, 0.0, 0.0]))
    phase_(composition.trainer, "validate")
    assert torch.equal(run.learner.actor[-1], run.learner.actor[int(run.scores.validation[:-1].argmax())])


@pytest.mark.long
def test_the_population_keeps_its_size_through_champion_injection(compose_run: Composed) -> None:
    """The original lost a member at each injection."""
    composition = compose_run({"evolution.champion_injection": 2, "learner.algorithm": "ddpg", "seed": 1})
    run = composition.trainer.run
    shape, injected = run.learner.actor.shape, []
    for generation in range(6):
        run.progress.round = generation
        phase_(composition.trainer, "evaluate")
        phase_(composition.trainer, "validate")
        champion, weakest = run.learner.actor[-1].clone(), int(run.scores.fitness.argmin())
        composition.trainer.phases[-1].step_(0)
        assert run.learner.actor.shape == shape == (5, shape[1])
        assert len({*run.lineage.ids[:-1].tolist()}) == 4, "every member is someone else"
        assert torch.equal(run.learner.actor[-1], champion)
        injected.append(torch.equal(run.learner.actor[weakest], champion))
    assert injected[1::2] == [True] * 3
    assert not injected[0]


def test_elites_keep_weights_and_moments_and_the_replaced_start_afresh(train_run: Trained) -> None:
    composition, _ = train_run(2)
    run = composition.trainer.run
    for phase in composition.trainer.phases[:-1]:
        for step in range(phase.steps()):
            phase.step_(step)
    actor, moments = run.learner.actor.clone(), run.learner.actor_adam.exp_avg.clone()
    elite = run.scores.fitness.argsort(descending=True)[:2]  # 37.5 % of 4, rounded
    assert moments[elite].abs().sum(1).min() > 0
    composition.trainer.phases[-1].step_(0)
    replaced = [n for n in range(4) if n not in elite.tolist()]
    assert torch.equal(run.learner.actor[elite], actor[elite])
    assert torch.equal(run.learner.actor_adam.exp_avg[elite], moments[elite])
    assert run.learner.actor_adam.exp_avg[replaced].abs().max() == 0
    assert not any(torch.equal(run.learner.actor[n], actor[n]) for n in replaced)


def test_one_seed_gives_one_run_and_another_seed_another(train_run: Trained) -> None:
    nobodys = torch.get_rng_state()
    first, numbers = train_run(2)
    assert torch.equal(torch.get_rng_state(), nobodys), "the global generator is left alone"
    second, again = train_run(2)
    assert digest(first.trainer.run) == digest(second.trainer.run)
    assert numbers == again
    assert digest(train_run(2, {"seed": 1})[0].trainer.run) != digest(first.trainer.run)


def test_holes_in_the_panel_never_reach_a_weight_or_a_number(train_run: Trained) -> None:
    """In the original, one missing cell in one batch made the policy constant for ever."""
    panel = "synthetic:6x260:late_listings=1:delistings=0.5:halts=0.1"
    composition, rounds = train_run(3, {"panel": panel, "learner.algorithm": "td3", "replay.prioritised": True})
    assert (~composition.panel.valid).mean() > 0.3
    run = composition.trainer.run
    may_be_missing = ("market.", "scores.importance", "scores.attention")
    for leaf in leaves(run):
        value = leaf.value
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not leaf.path.startswith(may_be_missing):
            assert not value.isnan().any(), leaf.path
    assert run.market.observations.isfinite().all()
    assert run.scores.importance.isfinite().all()
    assert all(np.isfinite(value) for numbers in rounds for value in numbers.values())
    assert (run.scores.activity > 0).all(), "no policy is constant"
    assert (run.learner.tally.skipped_total == 0).all()


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["hindsight", pytest.param("sac", marks=pytest.mark.slow)])
def test_a_run_resumed_at_any_step_of_judging_is_the_run_that_went_on(
    algorithm: str, compose_run: Composed, tmp_path: Path
) -> None:
    """A checkpoint leaves out where a tile played: every step begins anew."""
    changes = {"learner.algorithm": algorithm, "population.tile": 3}
    whole = compose_run(changes)
    assert train_(whole.trainer, 2, Silent())
    for stop in range(1, 7):  # the steps around and within evaluate and validate, two tiles each
        stopped = compose_run(changes)
        assert train_(stopped.trainer, 1, Silent())
        assert not train_(stopped.trainer, 2, Silent(left=stop))
        folder = tmp_path / f"{algorithm}{stop}"
        save_checkpoint(folder, stopped.trainer.run, round=1, step=stop, facts={}, config=CheckpointConfig())
        resumed = compose_run(changes)
        intact = newest_intact(folder, say=print)
        assert intact is not None
        restore_state_(resumed.trainer.run, intact)
        resumed.rebuild_()
        assert train_(resumed.trainer, 2, Silent())
        assert digest(resumed.trainer.run) == digest(whole.trainer.run), stop


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "algorithm", ["hindsight", "td3", *(pytest.param(a, marks=pytest.mark.slow) for a in ("ddpg", "sac"))]
)
def test_in_bf16_it_learns_other_numbers_and_goes_on_bit_for_bit(algorithm: str, compose_run: Composed) -> None:
    exact, whole, stopped, resumed = (
        compose_run({"learner.algorithm": algorithm, "learner.autocast": kind})
        for kind in ("off", "bf16", "bf16", "bf16")
    )
    for run in (exact, whole):
        assert train_(run.trainer, 2, Silent())
    learner = whole.trainer.run.learner
    assert digest(whole.trainer.run) != digest(exact.trainer.run)
    assert all(rows.isfinite().all() and rows.dtype == torch.float32 for rows in learner.inherited)
    assert not train_(stopped.trainer, 2, Silent(left=4))
    copied_back_(resumed.trainer.run, leaf_copies(stopped.trainer.run))
    resumed.rebuild_()
    assert train_(resumed.trainer, 2, Silent())
    assert digest(resumed.trainer.run) == digest(whole.trainer.run)
