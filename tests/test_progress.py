"""Progress bars: on terminals only, they end at 100 %, and short work has none."""

from __future__ import annotations

import io
import re
from functools import partial

import numpy as np
import pytest
from estimator_data import quick, small
from tqdm import tqdm

from nearfield import GPRegressor, progress
from nearfield.progress import Bars


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch):
    """What a terminal is sent, of work of any length."""
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    terminal = Terminal()
    monkeypatch.setattr(progress, "tqdm", partial(tqdm, file=terminal))
    return terminal


def pictures(terminal: io.StringIO) -> dict[str, list[int]]:
    """Percentages by what was done, in the order in which they were shown."""
    found: dict[str, list[int]] = {}
    for what, share in re.findall(r"([^\r\n]+?): +(\d+)%\|", terminal.getvalue()):
        found.setdefault(what, []).append(int(share))
    return found


def test_work_that_settles_early_ends_at_100(shown):
    with Bars().bar("settling", 600) as bar:
        bar.add(10)
        bar.reach(300)
        bar.reach(200)  # a bar does not go back
        bar.add(10_000)
    with Bars().bar("waiting", 600) as bar:
        bar.add(10)
    found = pictures(shown)
    assert found["settling"] == sorted(found["settling"])
    assert 50 in found["settling"]
    assert (found["settling"][-1], found["waiting"][-1]) == (100, 100)


def test_work_that_fails_does_not(shown):
    with pytest.raises(ZeroDivisionError):
        [1 // item for item in Bars().each("failing", [1, 0, 1, 1])]
    assert pictures(shown)["failing"][-1] == 25


@pytest.mark.parametrize("in_batches", [False, True])
def test_every_bar_of_a_fit_ends_at_100(shown, in_batches, monkeypatch):
    X, y = small(250)
    if in_batches:  # as if there were many rows
        monkeypatch.setattr("nearfield.schedule.EXACT_ROWS", 100)
        monkeypatch.setattr("nearfield.sweep.MOST_WHOLE", 100)
    model = GPRegressor(random_state=0, metric="plain", continuous=False, refresh_every=5).fit(X, np.sin(y))
    assert model.summary_.steps < model.summary_.most_steps  # it settled
    found = pictures(shown)
    assert "training" in found
    assert any(what.startswith("choosing k, up to " if in_batches else "calibrating") for what in found)
    for what, shares in found.items():
        assert shares == sorted(shares), what
        assert shares[-1] == 100, what
    assert len(found["training"]) > 3
    monkeypatch.setattr("nearfield.prediction._BLOCK_ROWS", 4)
    model.predict(X[:10])
    assert pictures(shown)["predicting"][-1] == 100


def test_nothing_is_shown_of_what_is_brief_or_where_nobody_looks(shown, monkeypatch, capsys):
    X, y = small(60)
    quick(verbose=False).fit(X, y)
    assert shown.getvalue() == ""
    monkeypatch.setattr(progress, "_DELAY", 1e9)
    quick(verbose=True).fit(X, y).predict(X)
    assert shown.getvalue() == ""
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    file = io.StringIO()  # or a pipe
    monkeypatch.setattr(progress, "tqdm", partial(tqdm, file=file))
    quick().fit(X, y).predict(X)
    assert file.getvalue() == ""
