"""`experiments` is a package beside `src`, found also when pytest is called by itself."""

import sys
from pathlib import Path

_root = str(Path(__file__).parents[2])
if _root not in sys.path:
    sys.path.append(_root)
