"""numpy, scipy, scikit-learn, Numba, threadpoolctl and tqdm are enough."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

BLOCKED = ("torch", "faiss", "pyarrow", "typer", "pandas", "polars", "matplotlib", "jinja2", "dask", "distributed")
HIDE = f"""
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError("hidden: " + name, name=name)
sys.meta_path.insert(0, Hide())
"""


def run(code, folder):
    return subprocess.run(
        [sys.executable, "-c", HIDE + textwrap.dedent(code)],
        cwd=folder, env=os.environ, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_the_estimators_need_no_extras(tmp_path):
    done = run(
        """
        import warnings
        import numpy as np
        from nearfield import GPClassifier, GPCountRegressor, GPRegressor

        warnings.simplefilter("ignore")
        rng = np.random.default_rng(0)
        X = rng.standard_normal((80, 2))
        f = np.sin(2 * X[:, 0]) + X[:, 1]
        quick = {"max_steps": 10, "refresh_every": 5, "random_state": 0}
        targets = {
            GPRegressor: [f, np.stack([f, -f], axis=1)],
            GPClassifier: [np.where(f > 0, "up", "down"), np.digitize(f, [-0.5, 0.5])],
            GPCountRegressor: [rng.poisson(np.exp(f))],
        }
        for estimator, every in targets.items():
            for y in every:
                model = estimator(**quick).fit(X[:60], y[:60])
                model.save("model.nearfield")
                loaded = estimator.load("model.nearfield")
                assert (loaded.predict(X[70:]) == model.predict(X[70:])).all()
                loaded.update(X[60:70], y[60:70])
                assert loaded.n_rows_ == 70
        print("done", [name for name in ("torch", "pandas", "pyarrow") if name in sys.modules])
        """,
        tmp_path,
    )
    assert done.stdout.strip() == "done []", done.stderr


def test_the_command_says_what_to_install(tmp_path):
    """Packages that are not there have no spec, which is how the command looks for them."""
    done = run(
        """
        import importlib.util
        import nearfield.entry as entry

        entry.find_spec = lambda name: None
        sys.exit(entry.main())
        """,
        tmp_path,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "pip install 'nearfield[cli]'" in line
    assert "typer and pyarrow" in line
    assert done.stdout == ""


@pytest.mark.parametrize("imported", ["nearfield", "nearfield.estimators", "nearfield.metrics"])
def test_importing_brings_no_extras(tmp_path, imported):
    code = f"""
        import {imported}
        print([name for name in {BLOCKED!r} if name in sys.modules])
        """
    assert run(code, tmp_path).stdout.strip() == "[]"
