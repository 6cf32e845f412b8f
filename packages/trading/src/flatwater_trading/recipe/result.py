"""Results of a finished run: result.json, the champion's trades on their prices, and the equity curves."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from flatwater.metrics.short_numbers import finite_or_none
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.results import write_json
from flatwater.runs.fingerprint import version_facts
from flatwater_trading.panel.oddities import splits_note
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import Days
from flatwater_trading.recipe.comparison import PlayedDays
from flatwater_trading.recipe.purchase_rules import RuleChoice
from flatwater_trading.recipe.score import ChampionScore
from flatwater_trading.recipe.tables import TraderFolder, write_frame
from flatwater_trading.training.round import ErlTrainer
from flatwater_watch.phrases import list_phrase

MAXIMUM_PRICES = 12
"""Instruments whose closes a run's folder keeps for its page."""


def write_result(panel: Panel, played_days: PlayedDays, result: Mapping[str, Any], folder: RunFolder) -> None:
    """Write tables and result of a run's validation days, each file atomically.

    Args:
        panel: panel that was played, for dates.
        played_days: results of the days that were played.
        result: the results as plain values.
        folder: folder of the run.
    """
    tables = TraderFolder.from_folder(folder)
    write_frame(played_days.trades, tables.trades)
    write_frame(equity_frame(panel, played_days), tables.equity)
    write_frame(sheet_frame(panel, played_days), tables.sheet)
    write_json(result, folder.result)


def write_holdout(panel: Panel, played_days: PlayedDays, result: Mapping[str, Any], folder: RunFolder) -> None:
    """Write tables and result of a run's holdout days, each file atomically; holdout.json last, as it marks completion.

    Args:
        panel: panel that was played, for dates.
        played_days: results of the days that were played.
        result: the results as plain values; the total returns of the random traders are added, for a study to pool.
        folder: folder of the run.
    """
    tables = TraderFolder.from_folder(folder)
    write_frame(played_days.trades, tables.holdout_trades)
    write_frame(equity_frame(panel, played_days), tables.holdout_equity)
    write_frame(sheet_frame(panel, played_days), tables.holdout_sheet)
    write_json({**result, "chance": played_days.chance.tolist()}, folder.holdout)


def as_json(
    panel: Panel, trainer: ErlTrainer, score: ChampionScore, choice: RuleChoice, split: str, *, threads: int
) -> dict[str, Any]:
    """Return the contents of result.json: the score, and the facts about the run that are needed to judge it.

    A number that is NaN or infinite becomes None.

    Args:
        panel: panel that was played.
        trainer: trainer of the run, with champion and settings.
        score: score of the days that were played.
        choice: rule by which the days were played.
        split: `validation` or `holdout`.
        threads: number of CPU threads, by the run's settings.
    """
    run, config = trainer.run, trainer.setup.config
    # If another rule was chosen, its sentence compares it with that of the settings in the place of holding times.
    sentences = (
        score.describe(with_holding_times=choice.replaced_settings_rule is None),
        choice.describe(score.settings_rule_return),
        _training_sentence(config.evaluation.validation_slices) if split == "validation" else "",
    )
    return score_as_json(panel, score, split) | {
        "champion_born": int(run.lineage.born[-1]),
        "champion_value": finite_or_none(float(run.scores.champion_value)),
        "generations": run.progress.round,
        "population": config.population.size,
        # Each try is a candidate that validation days could have chosen by luck: every member in every generation, and
        # then every other rule of the champion.
        "tries": run.progress.round * config.population.size + choice.tries,
        "tried": "members x generations" + (", and other rules of the champion" if choice.tries else ""),
        "rule": choice.to_json(score.settings_rule_return),
        "verdict": " ".join(filter(None, sentences)),
        "seed": config.seed,
        "threads": threads,
        "note": split_note(panel, score.days, split),
    }


def _training_sentence(slices: int) -> str:
    """Return the sentence that says why the table of the training has another return of the champion."""
    mean = f"the mean of {slices} random slices" if slices > 1 else "the return of one random slice"
    return f"The training's lines have another return: {mean} of these days, by the rule of the settings."


def score_as_json(panel: Panel, score: ChampionScore, split: str) -> dict[str, Any]:
    """Return a champion's results on the days that were played as plain values for a file of JSON.

    These are the values that every recipe on a panel has, and the effects and checks of a trader of purchases.

    Args:
        panel: panel that was played.
        score: results of the days.
        split: `validation`, `holdout` or `backtest`.
    """
    effects = {"effects": score.effects, "column_effects": score.column_effects}
    other_rules = {
        "holding_times": {str(rows): finite_or_none(value) for rows, value in score.holding_times.returns.items()},
        "trades_like_chance": score.trades_like_chance,
    }
    return played_as_json(panel, score, "erl", split) | effects | other_rules


def played_as_json(panel: Panel, played_days: PlayedDays, recipe: str, split: str) -> dict[str, Any]:
    """Return the results of played days as plain values: those that every recipe on a panel has.

    Args:
        panel: panel that was played.
        played_days: days, and the results of all traders.
        recipe: name of the recipe.
        split: `validation`, `holdout` or `backtest`.
    """
    dates, share = panel.dates, played_days.oracle_share
    return {
        "trainer": recipe,
        "split": split,
        "first_day": str(dates[played_days.days.first]),
        "last_day": str(dates[played_days.days.stop - 1]),
        "days": len(played_days.days),
        "periods_per_year": panel.calendar.a_year,
        "traders": {
            name: {key: finite_or_none(value) for key, value in row.items()} for name, row in played_days.rows.items()
        },
        "comparison": {
            name: finite_or_none(value) if isinstance(value, float) else value
            for name, value in asdict(played_days.comparison).items()
        },
        "oracle_share": None if share is None else finite_or_none(share),
        "benchmark": played_days.benchmark,
        # A list of quantiles, as a result that is read from a file has no tuples.
        "scores": [asdict(each) | {"quantiles": [*each.quantiles]} for each in played_days.scores.horizons],
        "verdict": played_days.verdict,
        "data_fingerprint": panel.fingerprint,
        "versions": version_facts(),
    }


NOTES = {
    "validation": "the champion was chosen on these days: expect less on days that nobody has looked at "
    "(flatwater evaluate --holdout)",
    "holdout": "nothing was chosen on these days; trust the result less with each look (holdout_looks.jsonl)",
}
"""Notes on the trust in a result, by the split of its days."""


def split_note(panel: Panel, days: Days, split: str) -> str:
    """Return the note on the trust in a result of days of a split: by the split and the prices."""
    return NOTES[split] + prices_note(panel, days)


def prices_note(panel: Panel, days: Days) -> str:
    """Return the end of a note, on what the prices of a result have: moves like splits, columns that are missing."""
    has_close = np.any(panel.valid[days.first : days.stop], axis=0)
    missing_names = [panel.instruments[n] for n in np.flatnonzero(~has_close)]
    missing_note = f". No close on any of these days: {list_phrase(missing_names)}" if missing_names else ""
    return splits_note(panel, days.first, days.stop) + missing_note


def prices_frame(panel: Panel, score: ChampionScore) -> pl.DataFrame:
    """Return date and closes of the instruments that the champion traded most; NaN on days without a close."""
    rows = slice(score.days.first, score.days.stop)
    traded_instruments = score.trades["instrument"].to_list()
    # Equal counts are ordered by name, as the order of a set differs between runs. An instrument named `date` is left
    # out below, as its column would replace the dates.
    most_traded = sorted(set(traded_instruments), key=lambda name: (-traded_instruments.count(name), name))[
        :MAXIMUM_PRICES
    ]
    names = [name for name in most_traded if name != "date"]
    closes = panel.closes(np.array([panel.instruments.index(name) for name in names], dtype=np.int64))[rows]
    columns = dict(zip(names, closes.T.astype(np.float64, order="C"), strict=True))
    return pl.DataFrame({"date": panel.dates[rows]} | columns)


def sheet_frame(panel: Panel, played_days: PlayedDays) -> pl.DataFrame:
    """Return date, exposure and turnover of the champion, and the rank correlation of its scores at each horizon.

    A column of correlations is named by its horizon in rows: `ic 5`, for information coefficient.
    """
    rows = slice(played_days.days.first, played_days.days.stop)
    correlations = {f"ic {horizon}": values for horizon, values in played_days.scores.daily.items()}
    return pl.DataFrame(
        {"date": panel.dates[rows], "exposure": played_days.exposure, "turnover": played_days.turnover} | correlations
    )


def equity_frame(panel: Panel, played_days: PlayedDays) -> pl.DataFrame:
    """Return date and each trader's equity at the close; the first row is the opening cash on the day before."""
    # There is a day before: `find_days` and the splits leave at least one earlier row.
    rows = slice(played_days.days.first - 1, played_days.days.stop)
    curves = {name: curve.double().cpu().numpy() for name, curve in played_days.equity.items()}
    return pl.DataFrame({"date": panel.dates[rows]} | curves)
