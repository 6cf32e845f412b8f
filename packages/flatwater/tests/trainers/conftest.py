"""Makes helpers importable by this folder's tests: `trees`, the world of `blocks/toy.py`, and the games of `envs`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE / "blocks"), str(HERE.parent / "envs")]
