"""Makes this folder's two helpers, `one_by_one` and `populations`, importable by its tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
