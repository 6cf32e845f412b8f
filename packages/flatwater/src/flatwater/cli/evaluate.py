"""Use of a trained policy: `flatwater evaluate` and `flatwater export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from flatwater.cli.settings import WithBudget, WithTrust
from flatwater_watch.options.bounds import Number
from flatwater_watch.options.declare import WordOption


@dataclass(frozen=True, kw_only=True)
class Evaluate(WithTrust, WithBudget):
    """Play the champion or policy of a run's newest checkpoint against its baselines.

    A champion plays against buy and hold, equal weights and random traders; a policy that grows networks against
    waiting, a heuristic and random actions; a student against its teacher and random actions. The days or episodes are
    those by which training was judged. --holdout plays others, which no part of training has seen; each look is logged
    in the run's holdout_looks.jsonl, because every look at a holdout makes its results less trustworthy.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or the URL at which it is mirrored."""
    holdout: bool = False
    """Play the holdout days or episodes, and log the look."""
    panel: Annotated[str | None, tyro.conf.arg(metavar="PANEL_OR_FILE_OF_PRICES")] = None
    """Where the panel of a run of traders lies now. It may have newer days than the run began with, which are left out
    (`flatwater backtest` plays those). Left out: where it was."""
    benchmark: Annotated[str | None, tyro.conf.arg(metavar="INSTRUMENT")] = None
    """An instrument of the panel, such as SPY, with which a run of traders is compared as well. Left out: that of the
    run."""
    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the policy's first episode as a video: .gif, or .mp4 with `pip install 'flatwater[video]'`. The
    environment is made once more with render_mode="rgb_array"."""
    video_episodes: Number = 1
    """Number of episodes in the video."""
    json: bool = False
    """Print the result as JSON instead of a table."""

    def __call__(self) -> int:
        """Evaluate the run, print its score next to the baselines, and return exit code 0."""
        import json
        import sys

        from flatwater.cli.outcome import show_result
        from flatwater.cli.plan import print_plan
        from flatwater.named_imports import GIVEN_PERMIT
        from flatwater.recipe import find_recipe
        from flatwater.runs.evaluate import evaluate, plan_evaluation
        from flatwater_watch.terminal import say, terminal

        errors = terminal(to_stderr=True)
        changes = {"panel": self.panel, "benchmark": self.benchmark, "budget": self.budget}
        # With --plan nothing is played, so no look at the holdout is logged.
        if self.plan:
            with errors.status("building the run on a device without memory …"):
                plan = plan_evaluation(self.run, errors.print, video=self.video, **changes)
            return print_plan(plan, as_json=self.json)
        with errors.status("reading the run and playing its trained policy …"):
            result = evaluate(
                self.run,
                holdout=self.holdout,
                say=errors.print,
                video=self.video,
                video_episodes=self.video_episodes,
                **changes,
            )
        if self.json:
            sys.stdout.write(json.dumps(result, indent=1) + "\n")
        else:
            show_result(result, terminal(), find_recipe(result["trainer"], GIVEN_PERMIT))
            if self.video is not None:
                say(f"video  {self.video}: returns {', '.join(f'{value:.2f}' for value in result['video'])}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Export(WithTrust, WithBudget):
    """Write the trained policy of a run as one file: a program for torch or for ONNX, or its weights.

    Where agents of an environment have different spaces, the policy of each kind of agents is a file of its own.

    The file has the network, the scales of its observations, the bounds of its actions, and a text that describes
    inputs and outputs. Before it is written, its numbers are compared with those of the trained policy.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or a .safetensors file of this command."""
    to: Annotated[Path, WordOption()]
    """The file to write: .pt2 for torch alone, .onnx for ONNX Runtime and its like, .safetensors for `flatwater.load`
    and other programs that read weights."""

    def __call__(self) -> int:
        """Write the trained policy to the file `to`, and print by how much its numbers differ; `--plan` only plans.

        Raises:
            ConfigError: no form of export has the ending of `to`.
        """
        from flatwater.api import load
        from flatwater.cli.plan import print_plan
        from flatwater.runs.policy_export import FORMS, export_files, plan_export, write_exports
        from flatwater_watch.errors import ConfigError
        from flatwater_watch.files.output import POLICY_OUTPUTS, check_output
        from flatwater_watch.terminal import say, terminal

        if self.to.suffix not in FORMS:
            raise ConfigError(f"--to {self.to}: expected a name that ends in {' or '.join(FORMS)}.")
        # Before the run is read: a file that cannot be written is refused at once.
        check_output("--to", self.to, POLICY_OUTPUTS[self.to.suffix])
        with terminal(to_stderr=True).status("reading the run and exporting its trained policy …"):
            exports = export_files(load(self.run), self.to)
            if self.plan:  # of several files, which are written one after the other, the largest
                plans = [plan_export(export, self.to.suffix, self.budget) for export in exports.values()]
                return print_plan(max(plans, key=lambda plan: plan.needed_bytes), as_json=False)
            difference = write_exports(exports, self.budget)
        for file in exports:
            say(f"{file}: the exported policy's numbers differ from the run's by at most {difference:.1g}")
        return 0
