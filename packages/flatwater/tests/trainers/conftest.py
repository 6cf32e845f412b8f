"""Makes this folder's helpers importable by its tests: `trees`, and the world of `blocks/toy.py`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE / "blocks")]
