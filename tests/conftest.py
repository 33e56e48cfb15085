"""Numba's cache looks at the time stamp of one file only, so the tests keep a cache for each state of src."""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

_sources = sorted((Path(__file__).parents[1] / "src").rglob("*.py"))
_digest = hashlib.sha256(b"".join(path.read_bytes() for path in _sources)).hexdigest()[:16]
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"nearfield-numba-{os.getuid()}-{_digest}"))


@pytest.fixture
def model(tmp_path):
    """A file that holds a header and arrays, not yet a fitted model."""
    from model_files import ARRAYS, HEADER

    from nearfield.persistence import write_file

    path = tmp_path / "bike.nearfield"
    write_file(path, HEADER, ARRAYS)
    return path


@pytest.fixture
def in_time():
    """Fail instead of hanging."""

    def stop(*_):
        raise AssertionError("hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def brief_training(monkeypatch):
    """Fits take a few steps, whatever is asked for: for checks that fit often and do not judge the fit."""
    from nearfield import fitting

    whole = fitting.schedule_for

    def brief(settings, *rest):
        return whole(replace(settings, max_steps=20, refresh_every=10), *rest)

    monkeypatch.setattr(fitting, "schedule_for", brief)
