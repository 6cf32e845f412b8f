"""A round of training, one generation of traders: its phases, its numbers, and its record of lineage.

The phases are learn, evaluate, validate and evolve. The numbers are read from the device once, when the loop settles
the round, before it saves a checkpoint.
"""

from typing import Any

from flatwater.algorithms.api import read_tally_
from flatwater.evolution.generation import crown_best_, evolve_
from flatwater.state.random import stream
from flatwater.trainers.loop import Phase, Trainer
from flatwater_trading.training.executor import TileExecutor
from flatwater_trading.training.learn import updates_due
from flatwater_trading.training.row_replay import drawable_count
from flatwater_trading.training.setup import ErlSetup
from flatwater_trading.training.state import ErlState
from flatwater_trading.training.tile import append_to_replay_, holding_return

ErlTrainer = Trainer[ErlSetup, ErlState]


def build_trainer(setup: ErlSetup, run: ErlState, executor: TileExecutor) -> ErlTrainer:
    """Return the trainer of a run, with its four phases bound to its state.

    Learning comes before validation, so the last updates of a run are judged too.
    """
    count = len(setup.tiles)
    phases = (
        Phase("learn", steps=lambda: updates_due(setup, run), step_=lambda _: executor.learn_()),
        Phase("evaluate", steps=lambda: count, step_=lambda tile: evaluate_(setup, run, executor, tile)),
        Phase("validate", steps=lambda: count, step_=lambda tile: validate_(setup, run, executor, tile)),
        Phase("evolve", steps=lambda: 1, step_=lambda _: evolve_generation_(setup, run, executor)),
    )
    return Trainer(setup, run, phases, lambda: read_numbers_(setup, run))


def evaluate_(setup: ErlSetup, run: ErlState, executor: TileExecutor, tile: int) -> None:
    """Let the members of a tile play the training slices (episodes); write their fitness, measures and transitions.

    A tile is a span of members that are computed at once. All tiles play the same slices; with noise if members learn
    from transitions.

    Args:
        setup: configuration and tiles.
        run: state; fitness and scores of the tile's members, and the replay, are written.
        executor: executor that computes tiles, here or on workers.
        tile: number of the tile, from 0.
    """
    span = setup.tiles[tile]
    result = executor.train(tile)
    rows = slice(*span)  # a row of the scores for each member
    scores = run.scores
    scores.fitness[rows] = result.fitness
    for name, column in result.slices.items():
        scores.training[name][rows] = column
    if result.transitions is not None:
        append_to_replay_(setup, run, result.transitions, span)


def validate_(setup: ErlSetup, run: ErlState, executor: TileExecutor, tile: int) -> None:
    """Let the members of a tile, and the champion, play the validation slices without noise; write their scores.

    All tiles play the same slices. After the last tile, the best member becomes the champion if it beats the old one.
    The old champion is scored again on these slices, so that a better trader beats it, and not easier days.

    Args:
        setup: configuration and tiles.
        run: state; validation scores are written, and after the last tile the champion.
        executor: executor that computes tiles, here or on workers.
        tile: number of the tile, from 0.
    """
    spans = setup.tiles
    result = executor.validate(tile)
    scores = run.scores
    # Tensors of the run, each with the tile's new scores, which are written into it.
    columns = (
        (scores.validation, result.value),
        (scores.activity, result.activity),
        (scores.attention, result.attention),
    )
    judged = ((scores.judged[name], values) for name, values in result.slices.items())
    for column, new_scores in (*columns, *judged):
        column[slice(*spans[tile])] = new_scores[:-1]
        # The champion plays with every tile and is last; tiles have one shape, so its number is the same in all.
        column[-1] = new_scores[-1]
    if tile + 1 == len(spans):
        _crown_champion_(setup, run)


def _crown_champion_(setup: ErlSetup, run: ErlState) -> None:
    """Make the member with the best validation value the champion if it beats the old one; write the champion's scores.

    The champion is the best trader so far. Its weights and scores are in the last row, after those of the members.
    """
    scores = run.scores
    # Besides its weights and value, these numbers of the best member are copied to the champion's row.
    numbers = [scores.activity, *scores.judged.values()]
    best_member = crown_best_(run.learner, run.lineage, scores.validation, numbers)
    scores.crowned.fill_(best_member >= 0)
    scores.holding.copy_(holding_return(setup, run.market, run.progress.round))
    scores.champion_value.copy_(scores.validation[-1])
    # `best_member` is -1 if the champion stays, and -1 is the champion's row, the last.
    scores.importance.copy_(scores.attention[best_member])


def evolve_generation_(setup: ErlSetup, run: ErlState, executor: TileExecutor) -> None:
    """Replace the members by the next generation, selected by their fitness on the training slices.

    The best validation value shows whether progress has stopped (a plateau), upon which mutation grows.
    """
    scores, generation = run.scores, run.progress.round
    scores.plateau = evolve_(
        setup.config.evolution,
        run.learner,
        run.lineage,
        run.schedule,
        fitness=scores.fitness,
        # float() waits for the device, once a generation.
        plateau_value=float(scores.validation[:-1].max()),
        generation=generation,
        # The stream is named by the generation, so a resumed run evolves as it would have.
        rng=stream(setup.config.seed, "evolution", generation, device=setup.device),
    )
    # Called after the rows are written: an executor with copies of them sends the new rows before it computes.
    executor.mark_members_changed_()


def read_numbers_(setup: ErlSetup, run: ErlState) -> dict[str, float]:
    """Return the numbers of a round by name, for its line in the metrics, and clear the sums of its updates."""
    scores = run.scores
    # One copy to the host, in float64, as a float32 mean of penalties of 10,000 and gains of 0.01 loses digits.
    fitness = scores.fitness.double().cpu()
    numbers: dict[str, Any] = {
        "fitness/mean": fitness.mean(),
        "fitness/max": fitness.max(),
        "fitness/min": fitness.min(),
        "fitness/deviation": fitness.std(correction=0),
        "validation/best": scores.validation[:-1].max(),
        "validation/mean": scores.validation[:-1].mean(),
        "validation/champion": scores.champion_value,
        "validation/return": scores.judged["total_return"][-1].mean(),
        "validation/holding": scores.holding,
        "champion/crowned": scores.crowned,
        "champion/born": run.lineage.born[-1],
        "policy/activity": scores.activity[-1],
        "mutation/rate": run.schedule.rate,
        "mutation/deviation": run.schedule.deviation,
        "mutation/plateau": run.scores.plateau,
        "updates": run.learner.tally.updates,
    }
    if run.replay is not None:
        numbers["buffer/fill"] = drawable_count(run.replay) / len(run.replay.row)
        numbers["buffer/missing"] = max(0, setup.config.replay.warmup - drawable_count(run.replay))
    numbers |= setup.algorithm.numbers(setup.config.learner, run.learner)
    episodes = _summarise_episodes(run)
    losses = read_tally_(run.learner.tally)
    return {name: float(value) for name, value in (numbers | episodes | losses).items()}


def _summarise_episodes(run: ErlState) -> dict[str, float]:
    """Return the means of the training episodes' measures over all members and slices, by name."""
    summary = {name: column.double().cpu() for name, column in run.scores.training.items()}
    count = summary["trades"].sum()
    # Win rate and mean gain are means over trades, so an episode counts by the number of its trades.
    return {
        "trades/count": float(count),
        "trades/win_rate": float((summary["win_rate"] * summary["trades"]).sum() / count.clamp(min=1)),
        "trades/mean_gain": float((summary["mean_gain"] * summary["trades"]).sum() / count.clamp(min=1)),
        "trades/refused": float(summary["refused"].mean()),
        "account/return": float(summary["total_return"].mean()),
        "account/drawdown": float(summary["drawdown"].mean()),
        "account/exposure": float(summary["exposure"].mean()),
    }


def lineage_record(run: ErlState) -> dict[str, Any]:
    """Return lineage and scores of each slot after this generation, by name; the champion's slot is the last."""
    lineage, scores = run.lineage, run.scores
    return {
        "ids": lineage.ids.tolist(),
        "parents": lineage.parents.tolist(),
        "born": lineage.born.tolist(),
        "fitness": scores.fitness.tolist(),
        "validation": scores.validation.tolist(),
    }
