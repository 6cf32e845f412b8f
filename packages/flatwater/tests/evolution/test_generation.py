"""Evolution in place: who survives, what children are made of, what is forgotten, and that nothing moves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flatwater.evolution.config import EvolutionConfig
from flatwater.evolution.generation import (
    MutationSchedule,
    adapt_mutation_,
    copy_to_champion_,
    cross_,
    mutate_,
    zero_moments_,
)
from flatwater.evolution.selection import draw_winners, group_counts, select_parents
from flatwater_watch.errors import ConfigError

WEIGHTS = 400


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def block_of(members: int) -> torch.Tensor:
    """Member m's weights are all m, the champion's -1: a blend shows its parents."""
    block = torch.arange(members + 1.0, dtype=torch.float64)
    block[-1] = -1
    return block[:, None].repeat(1, WEIGHTS)


def test_the_default_population_has_6_elites_6_offspring_and_4_mutants() -> None:
    config = EvolutionConfig()
    assert group_counts(config, 16) == (6, 6)
    reproduction = select_parents(torch.randn(16, generator=rng()), config, rng(), inject_champion=False)
    assert int(reproduction.replaced.sum()) == 10
    assert int(reproduction.mutated.sum()) == 4


@given(members=st.integers(2, 40), seed=st.integers(0, 1000), inject=st.booleans())
def test_a_generation_keeps_elites_bitwise_and_blends_the_rest(members: int, seed: int, *, inject: bool) -> None:
    config = EvolutionConfig()
    fitness = torch.randn(members, generator=rng(seed))
    reproduction = select_parents(fitness, config, rng(seed), inject_champion=inject)
    before, block = block_of(members), block_of(members)
    home = block.data_ptr()
    cross_(block, reproduction)

    elites, _ = group_counts(config, members)
    best = fitness.argsort(descending=True, stable=True)[:elites]
    assert block.data_ptr() == home
    assert torch.equal(block[best], before[best])
    assert torch.equal(block[-1], before[-1])
    for slot in reproduction.replaced.nonzero().squeeze(1).tolist():
        first, second, blend = (
            int(reproduction.first[slot]),
            int(reproduction.second[slot]),
            float(reproduction.blend[slot]),
        )
        expected = blend * before[first] + (1 - blend) * before[second]
        torch.testing.assert_close(block[slot], expected, rtol=0, atol=1e-5)


def test_an_injected_champion_is_an_exact_copy_and_the_population_keeps_its_size() -> None:
    fitness = torch.arange(8.0)
    reproduction = select_parents(fitness, EvolutionConfig(), rng(), inject_champion=True)
    block = block_of(8)
    cross_(block, reproduction)
    mutate_(block, reproduction, rate=1.0, deviation=1.0, rng=rng())
    assert (block[0] == -1).all(), "the weakest slot holds the champion, unmutated"
    assert block.shape == (9, WEIGHTS)


def test_a_member_without_a_fitness_ranks_last() -> None:
    fitness = torch.tensor([torch.nan, 1.0, 2.0, 3.0])
    reproduction = select_parents(fitness, EvolutionConfig(), rng(), inject_champion=False)
    assert bool(reproduction.replaced[0])
    assert not bool((reproduction.first[reproduction.replaced] == 0).any())


def test_mutation_changes_the_share_and_size_it_is_told_to() -> None:
    fitness = torch.arange(16.0)
    reproduction = select_parents(fitness, EvolutionConfig(), rng(), inject_champion=False)
    block = torch.zeros(17, 20_000, dtype=torch.float64)
    mutate_(block, reproduction, rate=0.2, deviation=0.025, rng=rng(1))
    mutants = block[:-1][reproduction.mutated]
    changed = mutants != 0
    assert not block[:-1][~reproduction.mutated].any()
    # 80,000 draws: four standard errors are 0.0057 of the share and 0.0006 of the deviation.
    assert float(changed.double().mean()) == pytest.approx(0.2, abs=0.0057)
    assert float(mutants[changed].std()) == pytest.approx(0.025, abs=0.0006)


def test_only_replaced_members_are_forgotten() -> None:
    reproduction = select_parents(torch.arange(8.0), EvolutionConfig(), rng(), inject_champion=False)
    moments, steps = torch.ones(8, WEIGHTS), torch.ones(8)
    zero_moments_((moments, steps), reproduction)
    assert torch.equal(moments[:, 0] == 0, reproduction.replaced)
    assert torch.equal(steps == 0, reproduction.replaced)


def test_the_fittest_of_the_drawn_wins() -> None:
    fitness = torch.tensor([0.0, 5.0, 1.0])
    assert set(draw_winners(fitness, 50, 30, rng()).tolist()) == {1}
    assert len(set(draw_winners(fitness, 200, 1, rng()).tolist())) == 3


def test_the_champion_is_a_copy_not_a_view() -> None:
    block = block_of(4)
    copy_to_champion_(block, 2)
    block[2] += 1
    assert (block[-1] == 2).all()


def test_mutation_grows_on_a_plateau_to_its_ceiling_and_falls_back_on_improvement() -> None:
    config = EvolutionConfig()
    best = torch.full((config.plateau_rounds + 1,), -torch.inf, dtype=torch.float64)
    schedule = MutationSchedule(rate=config.mutation_rate, deviation=config.mutation_deviation, best=best)
    assert [adapt_mutation_(schedule, 100.0, config) for _ in range(4)] == [False, False, False, True]
    assert (schedule.rate, schedule.deviation) == pytest.approx((0.3, 0.0375))
    for _ in range(5):
        assert adapt_mutation_(schedule, 101.0, config), "1 % in 3 generations is less than the 2 % wanted"
    assert (schedule.rate, schedule.deviation) == (0.4, 0.05)
    assert not adapt_mutation_(schedule, 110.0, config)
    assert (schedule.rate, schedule.deviation) == (0.2, 0.025)
    assert schedule.best is best


def test_shares_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"evolution.offspring_share = 0.8: .*1 - evolution.elite_share"):
        EvolutionConfig(elite_share=0.5, offspring_share=0.8)
