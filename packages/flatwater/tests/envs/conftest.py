"""Makes this folder's two helpers, `markets` and `reference_simulator`, importable by its tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
