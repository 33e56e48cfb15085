"""Model files of earlier versions: loaded with the same predictions, ever after."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from nearfield.cli import main
from nearfield.estimators import ESTIMATORS
from nearfield.estimators import _files as estimator_files
from nearfield.persistence import FORMAT_VERSION, ModelFileError, read_file, write_file

FILES = Path(__file__).parent / "files"
sys.path.insert(0, str(FILES))

from make import predictions  # noqa: E402

MODELS = sorted(path for path in FILES.glob("v*/*.npz"))
TABLES = sorted(FILES.glob("v*/table_*.nearfield"))

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning", "ignore::UserWarning")


def name_of(path):
    return f"{path.parent.name}-{path.stem}"


def load(path):
    """A model whichever estimator it belongs to."""
    version, header, _ = read_file(path)
    name = header["estimator"] if version == 2 else header["sections"]["estimator"]["name"]
    return ESTIMATORS[name].load(path)


def _quantiles_are_exact():
    """Whether those of SciPy's Student-t are; those of version 1.12 are off by some 1e-8."""
    df = np.linspace(2.1, 40, 200)
    return np.abs(scipy.stats.t.cdf(scipy.stats.t.ppf(0.95, df), df) - 0.95).max() < 1e-12


INTERVALS = ("low", "high", "lower", "upper")
TOLERANCE = {name: 1e-10 if _quantiles_are_exact() else 1e-6 for name in INTERVALS}


def assert_close(found, expected, name=""):
    """To 1e-10, relative to values of a thousandth or more."""
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    off = np.abs(found - expected) / (1e-3 + np.abs(expected))
    assert np.nanmax(off, initial=0) < TOLERANCE.get(name, 1e-10)


def assert_predicts(model, data, kind):
    given = {name: data[f"{name}_new"] for name in ("exposure", "trials") if f"{name}_new" in data.files}
    found = predictions(model, data["X_new"], data["y_new"], given)
    stored = [name for name in data.files if name.startswith(f"{kind}.")]
    assert stored
    for name in stored:
        own = name.partition(".")[2]
        assert_close(found[own], data[name], own)


def test_there_are_files_of_every_kind():
    versions = sorted(path.name for path in FILES.glob("v*"))
    assert versions == [f"v{version}" for version in range(2, FORMAT_VERSION + 1)]
    for version in versions:
        assert sum(path.parent.name == version for path in MODELS) >= 30
        assert sum(path.parent.name == version for path in TABLES) == 4


@pytest.mark.parametrize("path", MODELS, ids=name_of)
def test_predictions_are_those_of_the_version_that_wrote_the_file(path, tmp_path):
    model, data = load(path.with_suffix(".nearfield")), np.load(path)
    assert_predicts(model, data, "expected")
    model.save(tmp_path / "again.nearfield")
    again = load(tmp_path / "again.nearfield")
    more = {name.removesuffix("_more"): data[name] for name in data.files if name.endswith("_more")}
    X, y = more.pop("X"), more.pop("y")
    for one in (model, again):
        one.update(X, y, **more)
        assert_predicts(one, data, "updated")


@pytest.mark.parametrize("path", TABLES, ids=name_of)
def test_models_of_the_command_line(path, capsys):
    table = path.parent / "table.csv"
    assert main(["predict", str(path), str(table)]) == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out))
    expected = pd.read_csv(path.with_suffix(".csv"))
    assert list(found) == list(expected)
    for column in expected:
        if expected[column].dtype.kind == "f":
            assert_close(found[column].to_numpy(), expected[column].to_numpy(), column.rpartition("_")[2])
        else:
            assert (found[column] == expected[column]).all()
    assert main(["evaluate", str(path), str(table), "--json"]) == 0
    _assert_like(json.loads(capsys.readouterr().out), json.loads(path.with_suffix(".json").read_text()))
    assert main(["info", str(path)]) == 0
    assert re.search(rf"^file version +{path.parent.name[1:]}$", capsys.readouterr().out, re.MULTILINE)
    model = load(path)
    assert list(model.encoder_.feature_names)


def _assert_like(found, expected):
    if isinstance(expected, dict):
        assert set(found) == set(expected)
        for name, value in expected.items():
            _assert_like(found[name], value)
    else:
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def saved(tmp_path, change):
    """The plain Gaussian model in today's format, after a change of its sections."""
    path = tmp_path / "model.nearfield"
    load(FILES / "v2" / "gaussian.nearfield").save(path)
    _, header, arrays = read_file(path)
    change(header["sections"])
    write_file(path, header, arrays)
    return path


def test_fields_that_are_absent_have_defaults_and_unknown_ones_are_passed_over(tmp_path):
    def change(sections):
        del sections["summary"]["appended"], sections["summary"]["mean"]
        del sections["estimator"]["parameters"]["mean"]
        sections["estimator"]["parameters"]["of_a_later_version"] = 3
        sections["model"]["later"] = "x"
        sections["later"] = {"version": 7}

    model = load(saved(tmp_path, change))
    assert model.mean == "constant"
    assert model.summary_.appended == 0
    assert_predicts(model, np.load(FILES / "v2" / "gaussian.npz"), "expected")


@pytest.mark.parametrize("section", ["estimator", "family", "model", "head", "summary", "target", "extra"])
def test_a_newer_section_is_told(tmp_path, section):
    path = saved(tmp_path, lambda sections: sections[section].update(version=99))
    with pytest.raises(ModelFileError, match="upgrade nearfield"):
        load(path)


def test_a_newer_file_is_told(tmp_path, monkeypatch):
    path = tmp_path / "model.nearfield"
    with monkeypatch.context() as patch:
        patch.setattr("nearfield.persistence.FORMAT_VERSION", FORMAT_VERSION + 1)
        load(FILES / "v2" / "gaussian.nearfield").save(path)
    with pytest.raises(ModelFileError, match="upgrade nearfield"):
        load(path)


def test_a_constructor_may_grow_an_argument(monkeypatch):
    class GPRegressor(ESTIMATORS["GPRegressor"]):
        def __init__(self, kernel="matern52", k="auto", *, grown=5, random_state=None):
            super().__init__(kernel, k, random_state=random_state)
            self.grown = grown

    assert estimator_files.restored(GPRegressor, *read_file(FILES / "v2" / "gaussian.nearfield")).grown == 5
