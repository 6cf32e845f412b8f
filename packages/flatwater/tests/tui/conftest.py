"""Makes `synthetic_run`, which lies beside the tests of the reports, importable by the tests of this folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "reports"))
