"""What a reset leaves behind is found by name: made-up states, and the trading simulator, which is pooled itself."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from markets import CPU, market_of, rough_panel
from torch import Tensor

from flatwater.envs.pooled import Remnant, have_same_bits, remnants
from flatwater.state.random import generator
from flatwater.state.tree import state
from flatwater_trading.market.config import EpisodeConfig, TradingConfig
from flatwater_trading.market.market import Market
from flatwater_trading.market.simulator import Simulator, build_simulator, reset_, step_

torch.set_num_threads(1)


@state
class Walk:
    at: Tensor
    steps: int = 0
    rng: torch.Generator


def walk() -> Walk:
    return Walk(at=torch.zeros(3), rng=generator(1, "walk", CPU))


def restart_(walk: Walk) -> None:
    walk.at.zero_()
    walk.steps = 0
    walk.rng.manual_seed(5)


def stroll(walk: Walk) -> Iterator[tuple[str, Tensor]]:
    for _ in range(3):
        walk.at.add_(torch.randn(3, generator=walk.rng))
        walk.steps += 1
        yield "place", walk.at.clone()


def run_(walk: Walk) -> None:
    for _ in stroll(walk):
        pass


check = partial(remnants, build=walk, dirty_=run_, trace=stroll)


def test_a_whole_reset_leaves_nothing() -> None:
    assert check(reset_=restart_) == []


def test_a_generator_that_goes_on_is_found_and_so_is_what_it_changes() -> None:
    def forgets_(walk: Walk) -> None:
        walk.at.zero_()
        walk.steps = 0

    assert check(reset_=forgets_)[:2] == [
        Remnant("rng", "differs after the reset"),
        Remnant("place", "number 0 of the trace differs from a new state's"),
    ]


def test_a_number_and_part_of_a_tensor_are_found_with_their_extent() -> None:
    def forgets_(walk: Walk) -> None:
        walk.at[:2] = 0
        walk.rng.manual_seed(5)

    assert check(reset_=forgets_)[:2] == [
        Remnant("at", "differs after the reset in 1 of 3 elements"),
        Remnant("steps", "differs after the reset"),
    ]


def test_what_may_stay_is_not_compared_but_its_consequences_are() -> None:
    def forgets_(walk: Walk) -> None:
        walk.steps = 0
        walk.rng.manual_seed(5)

    found = check(reset_=forgets_, overwritten={"at": "said to be written first"})
    assert [r.path for r in found] == ["place"]


def test_bits_count_not_values() -> None:
    nan, zero = torch.tensor([torch.nan]), torch.tensor([0.0])
    assert have_same_bits(nan, nan.clone())
    assert not have_same_bits(zero, -zero)
    assert not have_same_bits(zero, zero.double())
    assert have_same_bits(np.array([1, 2]), np.array([1, 2]))
    assert have_same_bits(float("nan"), float("nan"))
    assert not have_same_bits(1, 1.0)


PURCHASE = ("instrument", "coefficient", "target", "entry_price", "exit_price", "shares")
WINDOW = {"start": 3, "trading_end": 13, "end": 18}
OVERWRITTEN = {
    "clock": "counts the steps of the simulator's life; it only says which row of positions is next, and all are empty",
    "positions.instrument": "read where exit_day says that there is a position",
    "positions.entry_price": "same",
    "positions.shares": "same",
} | {f"logs.{name}": "read where exit_day says that there was a purchase" for name in PURCHASE}


def trade(sim: Simulator, market: Market, seed: int) -> Iterator[tuple[str, Tensor]]:
    rng = generator(seed, "actions", CPU)
    config = TradingConfig(episode=EpisodeConfig(context=1, trading_days=10, settlement_days=5))
    for _ in range(15):
        action = torch.rand(4, 3, 2, generator=rng) * torch.tensor([2.0, 50.0])
        yield "reward", step_(sim, market, config, action).reward
        yield "cash", sim.cash.clone()
        yield "equity", sim.logs.equity.clone()


def test_the_trading_simulator_may_be_pooled() -> None:
    market = market_of(rough_panel(1, days=40, columns=3))
    build = partial(build_simulator, TradingConfig(), batch=4, max_days=20, instruments=3, device=CPU)

    def begin_(sim: Simulator, ahead: int = 0) -> None:
        reset_(sim, **{name: torch.full((4,), day + ahead) for name, day in WINDOW.items()})

    def dirty_(sim: Simulator) -> None:
        # A multiple of hold_days in steps, so that positions lie in the same rows as in a new simulator.
        for episode in range(12):
            begin_(sim, episode)
            for _ in trade(sim, market, episode):
                pass

    def forgets_cash_(sim: Simulator) -> None:
        cash = sim.cash.clone()
        begin_(sim)
        if cash.any():
            sim.cash.copy_(cash)

    pooled = partial(
        remnants, build=build, dirty_=dirty_, trace=lambda sim: trade(sim, market, 99), overwritten=OVERWRITTEN
    )
    assert pooled(reset_=begin_) == []
    assert next(r.path for r in pooled(reset_=forgets_cash_)) == "cash"
