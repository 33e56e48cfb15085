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
# Workers share the cores: with threads for all cores in each, these would wait for one another. Tests of threads ask
# for as many as they need.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in ("NEARFIELD_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")
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
    """Fits take a few steps, whatever is asked for: for checks that fit often and do not judge the fit.

    Every stage is there: L-BFGS on samples or on all rows, and mini-batches with a search in between.
    """
    from nearfield import learner
    from nearfield.descent import Descent

    whole = learner.schedule_for

    def brief(settings, *rest):
        schedule = whole(replace(settings, max_steps=10, refresh_every=5), *rest)
        stages = (replace(one, iterations=2) if isinstance(one, Descent) else one for one in schedule.stages)
        return replace(schedule, stages=tuple(stages))

    monkeypatch.setattr(learner, "schedule_for", brief)
