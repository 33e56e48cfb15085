"""The data, splits and peers of the benchmarks are those of the experiments, which lie beside this folder.

Importing this module puts them on the path of a script that is run by its name.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from experiments.data import Split, available, load, load_array, split  # noqa: E402

__all__ = ["ROOT", "Split", "available", "load", "load_array", "split"]
