"""Makes this folder's helpers importable by its tests: `poisoned`, and `parting`, an environment whose agents leave."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
