"""Numbers of a head as they stand in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nearfield.persistence import require


def scalars(stored: Mapping[str, Any], defaults: Mapping[str, Any], infinite: str = "") -> dict[str, float]:
    """Finite numbers by the names of `defaults`, which stand in for what is absent; others are passed over.

    The one called `infinite` is infinite where the file has null.
    """
    found = {}
    for name, default in defaults.items():
        if name == infinite and stored.get(name, default) is None:
            found[name] = math.inf
        else:
            found[name] = require(stored, name, float) if name in stored else float(default)
    return found
