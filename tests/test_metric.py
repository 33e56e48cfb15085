"""The metric that is learned, through the estimators: bent columns, smoothness, priors, and how to switch them off."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from cli_runs import runner
from estimator_data import load_forged, through_file

from nearfield import GPClassifier, GPCountRegressor, GPRegressor, WildValuesWarning
from nearfield.families import Gaussian
from nearfield.objectives import conditional_score
from nearfield.persistence import ModelFileError
from nearfield.rows import Rows
from nearfield.warps import Warps

QUICK = {"max_steps": 60, "refresh_every": 20, "random_state": 0}


def skewed(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Targets that are smooth in the logarithm of the first column; the second is as it should be."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)
    return np.column_stack([np.exp(2 * X[:, 0]), X[:, 1]]), y


@pytest.fixture(scope="module")
def fitted():
    X, y = skewed(600)
    return GPRegressor(random_state=0).fit(pd.DataFrame(X, columns=["income", "age"]), y)


def test_a_skewed_column_is_bent_and_predicted_better(fitted):
    X, y = skewed(600)
    X_new, y_new = skewed(500, seed=1)
    straight = GPRegressor(random_state=0, warp=False).fit(X, y)
    frame = pd.DataFrame(X_new, columns=["income", "age"])
    assert fitted.log_score(frame, y_new) > straight.log_score(X_new, y_new) + 0.05
    assert fitted.bends_[0, 0] < 0.5 < fitted.bends_[1, 0] + 0.45
    np.testing.assert_allclose(fitted.bends_.sum(axis=1), 1)
    assert "income" in fitted.summary_.bent
    np.testing.assert_array_equal(straight.bends_, [[1, 0, 0]] * 2)
    assert straight.summary_.bent == ""


def test_smoothness_is_learned():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 20, 500))[:, None]
    rough = np.cumsum(rng.standard_normal(500) * np.sqrt(np.diff(X[:, 0], prepend=0)))
    shares = {}
    for name, y in (("rough", rough), ("smooth", np.sin(X[:, 0]))):
        model = GPRegressor(random_state=0).fit(X, y)
        shares[name] = model.smoothness_["matern12"]
        assert sum(model.smoothness_.values()) == pytest.approx(1)
        assert ("abruptly" in str(model.summary_)) == (shares[name] >= 0.005)
    assert shares["smooth"] < 0.01 < 0.05 < shares["rough"]
    assert GPRegressor(kernel="rbf", **QUICK).fit(X, rough).smoothness_ is None


def test_the_plain_metric_is_the_papers():
    X, y = skewed(200)
    plain = GPRegressor(metric="plain", **QUICK).fit(X, y)
    assert plain.summary_.kernel == "matern52"
    assert not plain._fit.predictor.model.covariance.shrinks
    np.testing.assert_array_equal(plain.bends_, [[1, 0, 0]] * 2)
    assert GPRegressor(metric="plain", kernel="rbf", **QUICK).fit(X, y).summary_.kernel == "rbf"


@pytest.mark.parametrize(
    ("warp", "bent"),
    [(True, [0, 1]), (False, []), (["age"], [1]), ([0], [0]), ({"age": False}, [0]), ({1: True}, [0, 1]), ([], [])],
)
def test_columns_are_switched_off_by_name(warp, bent):
    X, y = skewed(100)
    model = GPRegressor(warp=warp, **QUICK).fit(pd.DataFrame(X, columns=["income", "age"]), y)
    assert model._fit.predictor.model.covariance.warps.columns.tolist() == bent


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"warp": ["incom"]}, ["incom", "Did you mean 'income'"]),
        ({"warp": {"agee": False}}, ["agee", "Did you mean 'age'"]),
        ({"warp": [2]}, ["2", "0 to 1"]),
        ({"warp": "income"}, ["income", "a list of the columns"]),
        ({"warp": 3}, ["3", "expected True, False"]),
        ({"metric": "paper"}, ["paper", "plain"]),
        ({"kernel": "Auto"}, ["Auto", "auto"]),
    ],
)
def test_mistakes_are_told(arguments, parts):
    X, y = skewed(50)
    with pytest.raises(ValueError) as error:
        GPRegressor(**arguments).fit(pd.DataFrame(X, columns=["income", "age"]), y)
    for part in parts:
        assert part in str(error.value)


def awkward(n: int) -> np.ndarray:
    """Two values, one huge value, a constant, integers with ties, heavy tails, three values, tiny numbers."""
    rng = np.random.default_rng(2)
    huge = rng.standard_normal(n)
    huge[3] = 1e15
    columns = (
        rng.integers(0, 2, n), huge, np.full(n, 7.0), rng.integers(0, 5, n), rng.standard_cauchy(n),
        rng.integers(0, 3, n), 1e-200 * rng.standard_normal(n), rng.standard_normal(n),
    )  # fmt: skip
    return np.column_stack(columns).astype(np.float64)


@pytest.mark.parametrize("n", [200, 2000])
@pytest.mark.parametrize("estimator", [GPRegressor, GPClassifier, GPCountRegressor])
def test_awkward_columns_are_normal_inputs(estimator, n):
    X, rng = awkward(n), np.random.default_rng(0)
    f = np.sin(2 * X[:, -1]) + X[:, 0]
    y = {GPRegressor: f + 0.1 * rng.standard_normal(n), GPClassifier: (f > 0.5) * 1}
    y[GPCountRegressor] = rng.poisson(np.exp(f))
    far = np.vstack([X[:5], -1e3 * np.abs(X[:5]), 1e20 * np.ones((1, X.shape[1]))])
    far[:, 6] = X[: len(far), 6]  # squares of its distances would overflow, which is told
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.warns(WildValuesWarning, match="column 'x1' has 1e\\+15 in row 3"):
            model = estimator(k=16, **QUICK).fit(X, y[estimator])
        found = model.predict_proba(far) if estimator is GPClassifier else model.predict(far)
    assert np.isfinite(found).all()
    assert model.bends_[[0, 2]].tolist() == [[1, 0, 0]] * 2


def test_bends_go_through_files_updates_and_groups(tmp_path):
    X, y = skewed(300)
    X_new, y_new = skewed(40, seed=1)
    model = GPRegressor(k=20, **QUICK).fit(X, y, groups=np.arange(300) // 3)
    with pytest.warns(UserWarning, match="training rows"):
        loaded = through_file(model, tmp_path)
    np.testing.assert_array_equal(loaded.predict(X_new), model.predict(X_new))
    np.testing.assert_array_equal(loaded.bends_, model.bends_)
    assert str(loaded.summary_) == str(model.summary_)
    assert loaded.smoothness_ == model.smoothness_
    for one in (model, loaded):
        one.update(X_new, y_new)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize("outputs", ["lmc", "independent", "shared"])
def test_several_outputs_share_the_bends(outputs):
    X, y = skewed(300)
    model = GPRegressor(k=20, outputs=outputs, **QUICK).fit(X, np.column_stack([y, -2 * y]))
    assert model.bends_.shape == (2, 3)
    assert np.isfinite(model.predict(X[:5])).all()


@pytest.mark.filterwarnings("ignore:.*contains the")
@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda arrays: arrays.update({"warps.columns": np.array([0, 5])}), "warps.columns"),
        (lambda arrays: arrays.update({"warps.knots": arrays["warps.knots"][:, ::-1].copy()}), "increase"),
        (lambda arrays: arrays.update({"warps.scores": arrays["warps.scores"][:, :1].copy()}), "warps.scores"),
        (lambda arrays: arrays.pop("warps.knots"), "warps.knots"),
        (lambda arrays: arrays.update({"parameter.bends": np.full((2, 2), 99.0)}), "bends"),
    ],
)
def test_files_with_impossible_warps_are_refused(fitted, tmp_path, change, part):
    with pytest.raises(ModelFileError, match=part):
        load_forged(fitted, tmp_path, lambda sections, arrays: change(arrays))


def test_features_of_some_rows_are_those_of_all():
    """What training keeps of a long table: only rows that are about to be neighbours."""
    from family_examples import case, model_of

    example = case("gaussian:")
    model, rows = model_of(example)
    warps = Warps.of(rows.inputs, np.ones(len(rows)), np.ones(2, dtype=bool))
    own = type(model.covariance)(model.covariance.kernel, 1, warps, 1)
    model = type(model).initial(Gaussian(), own, model.mean)
    ids = np.array([[1, 2, -1], [4, 0, 3]])
    many = Rows.of(example.family, np.tile(rows.inputs, (9, 1)), {k: np.tile(v, 9) for k, v in rows.observed.items()})
    some = many.featured(warps, ids)
    assert some.features.numbering is not None
    assert len(some.features.values) == 5
    left_out = many.observations.take(np.array([7, 8]))
    for found, expected in (
        (conditional_score(model, some, left_out, ids), conditional_score(model, many, left_out, ids)),
    ):
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.slopes(np.ones(2))[0]["bends"], expected.slopes(np.ones(2))[0]["bends"])


def test_the_command_line_bends_and_tells(tmp_path, capsys):
    run = runner(capsys)
    X, y = skewed(120)
    pd.DataFrame({"income": X[:, 0], "age": X[:, 1], "y": y}).to_csv(tmp_path / "t.csv", index=False)
    given = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--out", str(tmp_path / "m.nearfield")]
    result = run(*given, "--straight", "agee")
    assert result.code == 2
    assert "Did you mean 'age'" in result.err
    result = run(*given, "--no-warp", "--straight", "age")
    assert result.code == 2
    assert "--no-warp" in result.err
    result = run(*given, "--straight", "age")
    assert result.code == 0, result.err
    assert "How the target changes with the columns: " in result.out
    told = json.loads(run("info", str(tmp_path / "m.nearfield"), "--json").out)
    bent = {feature["name"]: feature["bent"] for feature in told["features"]}
    assert bent["age"] == {"as_it_is": 1.0, "normal_score": 0.0, "uniform_score": 0.0}
    assert 0 < bent["income"]["normal_score"] < 1
    assert sum(told["smoothness"].values()) == pytest.approx(1)
    assert run(*given, "--metric", "plain").code == 0
