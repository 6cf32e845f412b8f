"""Makes `fuzzed`, and `synthetic_run` of the reports' tests, importable by the tests of this folder."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "reports")]
