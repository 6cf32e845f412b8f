"""`flatwater export`: what was trained as one file that runs without its run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write what a run has trained as one file: a program for torch or for ONNX, or its weights.

    Inside are the network, the scales of what it sees, the bounds of its actions, and a text that says what goes in and
    comes out. What is written is run first and compared with what was trained.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or a .safetensors file of this command."""
    to: Path
    """The file to write: .pt2 for torch alone, .onnx for ONNX Runtime and its like, .safetensors for `flatwater.load`
    and all that reads weights."""

    def __call__(self) -> int:
        """Load, export, compare."""
        from flatwater.api import export
        from flatwater.cli.output_file import check_output
        from flatwater.errors import ConfigError
        from flatwater.runs.portable import FORMS
        from flatwater.terminal import say, terminal

        if self.to.suffix not in FORMS:
            raise ConfigError(f"--to {self.to}: the name must end in {', '.join(FORMS)}. Name such a file.")
        check_output("--to", self.to)
        with terminal(errors=True).status("reading the run and exporting what it has trained …"):
            difference = export(self.run, self.to)
        say(f"{self.to}: run again, its numbers differ by at most {difference:.1g}")
        return 0
