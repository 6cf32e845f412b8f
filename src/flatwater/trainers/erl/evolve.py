"""The evolution phase: the next generation is written over the losers, in place."""

import torch

from flatwater.evolution.schedule import adapt_
from flatwater.evolution.selection import Descent, descend
from flatwater.evolution.variation import cross_, forget_, mutate_
from flatwater.trainers.erl.setup import Setup
from flatwater.trainers.erl.state import Erl


def evolve_(setup: Setup, run: Erl) -> None:
    """Elites stay; offspring and mutants take the other slots with fresh moments; the champion may be injected."""
    config, rng = setup.config.evolution, run.generators["evolution"]
    run.scores.plateau = adapt_(run.schedule, float(run.scores.validation[:-1].max()), config)
    due = config.champion_injection > 0 and (run.progress.round + 1) % config.champion_injection == 0
    descent = descend(run.scores.fitness, config, rng, inject_champion=due)

    learner = run.learner
    for rows in learner.inherited:
        cross_(rows, descent)
    mutate_(learner.actor, descent, rate=run.schedule.rate, deviation=run.schedule.deviation, rng=rng)
    mutants = descent.mutated.nonzero().squeeze(1)
    for target, followed in learner.targets:
        if followed is learner.actor:
            target[mutants] = followed[mutants]
    for _, adam in learner.trained.values():
        forget_((adam.exp_avg, adam.exp_avg_sq, adam.steps), descent)
    inherit_(run, descent)


def inherit_(run: Erl, descent: Descent) -> None:
    """Enter the new members into the lineage."""
    lineage = run.lineage
    slots = descent.replaced.nonzero().squeeze(1)
    parents = torch.stack([lineage.ids[descent.first[slots]], lineage.ids[descent.second[slots]]], dim=1)
    lineage.parents[slots] = parents
    lineage.ids[slots] = lineage.made + torch.arange(len(slots), device=slots.device)
    lineage.born[slots] = run.progress.round + 1
    lineage.made += len(slots)
