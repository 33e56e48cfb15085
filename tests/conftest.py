"""Numba's cache looks at the time stamp of one file only, so the tests keep a cache for each state of src."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

_sources = sorted((Path(__file__).parents[1] / "src").rglob("*.py"))
_digest = hashlib.sha256(b"".join(path.read_bytes() for path in _sources)).hexdigest()[:16]
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"nearfield-numba-{os.getuid()}-{_digest}"))
