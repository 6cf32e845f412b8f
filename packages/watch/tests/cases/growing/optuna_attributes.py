"""Predictions as user attributes of each trial of a study in memory.

Thread: https://github.com/optuna/optuna/issues/3050
Looks like: memory climbs with the trials.
Fix: write predictions to a file, and give the trial its name.
"""

import sys
import time

import optuna


def objective(trial: optuna.Trial) -> float:
    weight = trial.suggest_float("weight", 0, 1)
    trial.set_user_attr("predictions", [weight + n for n in range(60_000)])  # <- here
    time.sleep(0.15)
    return weight


def main(rounds: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    study.optimize(objective, n_trials=rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
