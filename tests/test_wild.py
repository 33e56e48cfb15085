"""Wild values: found where a cell is far beyond all others of its column, nowhere else; told once; harmless."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from nearfield import GPClassifier, GPCountRegressor, GPRegressor, WildValuesWarning
from nearfield.scaling import FAR, Scaling
from nearfield.wild import GAP, tame


def found(column: np.ndarray, weights: np.ndarray | None = None) -> list[int]:
    """Rows with wild values."""
    tamed = tame(column[:, None], np.ones(len(column)) if weights is None else weights)
    return [] if tamed.wild is None else np.flatnonzero(tamed.wild[:, 0]).tolist()


# --- which values are wild ------------------------------------------------------------------------------------------

ORDINARY = {
    "normal": lambda rng, n: rng.normal(size=n),
    "uniform": lambda rng, n: rng.random(n),
    "skewed": lambda rng, n: rng.lognormal(0, 1, n),
    "very skewed": lambda rng, n: rng.lognormal(0, 3, n),
    "absurdly skewed": lambda rng, n: rng.lognormal(0, 8, n),
    "all magnitudes": lambda rng, n: 10 ** rng.uniform(-300, 300, n),
    "heavy tails": lambda rng, n: rng.standard_t(2, n),
    "word frequencies": lambda rng, n: rng.zipf(2.0, n).astype(float),
    "counts": lambda rng, n: rng.poisson(0.05, n).astype(float),
    "a flag": lambda rng, n: (rng.random(n) < 0.01).astype(float),
    "a rare flag": lambda rng, n: (np.arange(n) == 3).astype(float),
    "two values far apart": lambda rng, n: np.where(np.arange(n) == 3, 1e15, 1.0),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.95, 0.0, rng.lognormal(8, 1.5, n)),
    "a code for nothing": lambda rng, n: np.where(rng.random(n) < 0.1, -999.0, rng.normal(size=n)),
    "dates": lambda rng, n: 1.7e18 + 1e9 * rng.integers(0, 10**7, n),
    "years": lambda rng, n: rng.integers(1990, 2025, n).astype(float),
    "two crowds": lambda rng, n: np.where(rng.random(n) < 0.5, 0.0, 1e9) + rng.normal(size=n),
    "constant": lambda rng, n: np.full(n, 5.0),
    "tiny": lambda rng, n: 1e-300 * rng.normal(size=n),
    "subnormal": lambda rng, n: 5e-324 * rng.integers(-3, 3, n),
    "huge": lambda rng, n: 1e308 * rng.uniform(-1, 1, n),
}


@pytest.mark.parametrize("kind", ORDINARY)
@pytest.mark.parametrize("n", [1, 2, 12, 60, 800])
def test_ordinary_columns_have_no_wild_values(kind, n):
    for seed in range(20):
        column = ORDINARY[kind](np.random.default_rng(seed), n)
        values = column[:, None]
        tamed = tame(values, np.ones(n))
        assert tamed.wild is None, seed
        assert tamed.values is values


@pytest.mark.parametrize("unit", [1e-250, 1.0, 1e200])
@pytest.mark.parametrize("cells", [(1e15,), (-1e15,), (1e90,), (1e15, -1e15, 1e16, 1e60), (1e15,) * 5], ids=str)
@pytest.mark.parametrize("kind", ["normal", "uniform", "skewed", "heavy tails", "counts", "mostly zero"])
def test_planted_values_are_found_and_nothing_else(kind, cells, unit):
    column = unit * ORDINARY[kind](np.random.default_rng(0), 800)
    rows = [17 * (i + 1) for i in range(len(cells))]
    clean = np.delete(column, rows)
    column[rows] = unit * np.array(cells)
    assert found(column) == rows
    tamed = tame(column[:, None], np.ones(800)).values[:, 0]
    assert set(tamed[rows]) <= {clean.min(), clean.max()}
    assert (np.delete(tamed, rows) == clean).all()


def test_a_gap_is_needed():
    column = np.random.default_rng(0).normal(size=800)
    edge = np.abs(column - np.median(column)).max()
    for factor, rows in ((0.5, []), (2.0, [5])):
        assert found(np.r_[column[:5], np.median(column) + factor * GAP * edge, column[5:]]) == rows


def test_many_are_not_wild():
    column = np.random.default_rng(0).normal(size=800)
    column[:40] *= 1e15
    assert found(column) == []


def test_missing_values_and_weights():
    column = np.random.default_rng(0).normal(size=800)
    column[::3] = np.nan
    column[7] = 1e15
    assert found(column) == [7]
    weights = np.ones(800)
    weights[7] = 500  # given five hundred times, it is no slip of the pen
    assert found(column, weights) == []


def test_a_table_without_numbers_in_a_column():
    assert found(np.full(30, np.nan)) == []


# --- what they do to a fit ------------------------------------------------------------------------------------------


def _rows(n: int = 1200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=n)


X_ALL, Y_ALL = _rows()
N = 450
X, Y, X_TEST, Y_TEST = X_ALL[:N], Y_ALL[:N], X_ALL[800:], Y_ALL[800:]
PLANTED = {"1e15": {17: 1e15}, "-1e15": {17: -1e15}, "1e300": {17: 1e300}, "several": {3: 1e15, 99: -1e15, 400: 1e300}}


def _scores(model: GPRegressor) -> np.ndarray:
    """Left-out and test RMSE."""
    return np.array([model.summary_.left_out["rmse"], np.sqrt(np.mean((model.predict(X_TEST) - Y_TEST) ** 2))])


@pytest.fixture(scope="module")
def clean():
    with warnings.catch_warnings():
        warnings.simplefilter("error", WildValuesWarning)
        return {
            metric: _scores(GPRegressor(metric=metric, random_state=0).fit(X, Y)) for metric in ("learned", "plain")
        }


@pytest.mark.parametrize(
    ("which", "metric"), [*((which, "learned") for which in PLANTED), ("1e15", "plain"), ("several", "plain")]
)
def test_wild_inputs_change_no_score_by_5_percent(clean, which, metric):
    spoiled = X.copy()
    for row, value in PLANTED[which].items():
        spoiled[row, 0] = value
    with pytest.warns(WildValuesWarning):
        model = GPRegressor(metric=metric, random_state=0).fit(spoiled, Y)
    assert _scores(model) == pytest.approx(clean[metric], rel=0.05)
    assert model.summary_.left_out_rows == N - len(PLANTED[which])
    assert len(model.loo_.mean) == N


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_wild_targets_change_no_score_by_5_percent(clean, likelihood):
    spoiled = Y.copy()
    spoiled[[17, 99]] = 1e15, -1e300
    with pytest.warns(WildValuesWarning) as told:
        model = GPRegressor(likelihood=likelihood, random_state=0).fit(X, spoiled)
    assert _scores(model) == pytest.approx(clean["learned"], rel=0.05)
    assert np.abs(model.target_std_) < 3
    message = str(told[0].message)
    assert "the target has 1e+15 in row 17, -1e+300 in row 99" in message
    assert ("--likelihood student_t" in message) == (likelihood == "gaussian")


def test_several_outputs_with_gaps():
    targets = np.stack([Y, 2 - Y], axis=1)[:300]
    targets[5, 0], targets[::7, 1] = 1e15, np.nan
    with pytest.warns(WildValuesWarning, match="output 0 has 1e\\+15 in row 5, ") as told:
        model = GPRegressor(outputs="shared", random_state=0, max_steps=50).fit(X[:300], targets)
    assert len(told) == 1
    assert np.isfinite(model.predict(X_TEST)).all()
    assert (model.target_std_ < 3).all()


# --- what is told ---------------------------------------------------------------------------------------------------


def _told(kind, X, y, **given) -> str:
    """The one warning about wild values."""
    with warnings.catch_warnings(record=True) as every:
        warnings.simplefilter("always")
        kind(max_steps=1, random_state=0).fit(X, y, **given)
    own = [w for w in every if issubclass(w.category, WildValuesWarning)]
    assert len(own) == 1
    assert own[0].filename == __file__  # the line that called fit
    return str(own[0].message)


def test_the_warning_names_columns_rows_and_values():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[:100], columns=["length", "width", "depth"])
    frame.loc[17, "width"] = -1e15
    message = _told(GPRegressor, frame, Y[:100])
    assert message.startswith("1 value is far beyond all others: column 'width' has -1e+15 in row 17, and else -")
    assert "counts as the nearest of the others" in message
    assert "Mend such inputs, or remove their rows." in message
    assert "student_t" not in message
    assert message.endswith("Rows are counted from 0.")


def test_the_warning_counts_what_it_does_not_name():
    spoiled = np.tile(X[:400], 2)
    spoiled[:5, :] = 1e15
    message = _told(GPRegressor, spoiled, Y[:400])
    assert message.startswith("30 values are far beyond all others: column 'x0' has 1e+15 in row 0, 1e+15 in row 1, ")
    assert "2 more, and else" in message
    assert "and 3 more columns. " in message


def test_rows_are_counted_among_those_that_were_given():
    spoiled, weights = X[:200].copy(), np.ones(200)
    spoiled[50, 1], weights[:20] = 1e15, 0
    for kind, y in ((GPRegressor, Y[:200]), (GPClassifier, Y[:200] > 0), (GPCountRegressor, np.floor(Y[:200] + 5))):
        assert "column 'x1' has 1e+15 in row 50," in _told(kind, spoiled, y, sample_weight=weights)


def test_inputs_and_target_share_a_warning():
    spoiled, y = X[:200].copy(), Y[:200].copy()
    spoiled[50, 1], y[60] = 1e15, 1e15
    message = _told(GPRegressor, spoiled, y)
    assert "column 'x1' has 1e+15 in row 50," in message
    assert "the target has 1e+15 in row 60," in message


def test_counts_stay_as_they_are_and_are_told():
    counts = np.random.default_rng(0).poisson(5, 200).astype(float)
    counts[9] = 1e9
    message = _told(GPCountRegressor, X[:200], counts)
    assert "the target has 1e+09 in row 9," in message
    assert "Counts stay as they are" in message
    exposure = np.where(np.arange(200) == 9, 2e8, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", WildValuesWarning)
        GPCountRegressor(max_steps=1, random_state=0).fit(X[:200], counts, exposure=exposure)


def test_a_row_of_weight_two_is_that_row_twice():
    spoiled = X[:200].copy()
    spoiled[50, 1] = 1e15
    weights = np.ones(200)
    weights[[50, 51]] = 2
    twice = np.r_[spoiled, spoiled[50:52]], np.r_[Y[:200], Y[50:52]]
    once, again = (GPRegressor(random_state=0, max_steps=5) for _ in range(2))
    with pytest.warns(WildValuesWarning):
        once.fit(spoiled, Y[:200], sample_weight=weights)
    with pytest.warns(WildValuesWarning):
        again.fit(*twice)
    assert (once.predict(X_TEST) == again.predict(X_TEST)).all()


def test_the_command_line_names_columns(tmp_path, capsys):
    pytest.importorskip("typer", reason="the command line is not installed")
    from cli_runs import runner, short_training

    spoiled = X[:200].copy()
    spoiled[5, 1] = 1e15
    lines = [",".join(map(repr, [*row, y])) for row, y in zip(spoiled.tolist(), Y[:200].tolist(), strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["speed,load,depth,wear", *lines]))
    with short_training():
        result = runner(capsys)("fit", tmp_path / "table.csv", "--target", "wear", "--out", tmp_path / "model.nf")
    assert result.code == 0
    assert "warning: 1 value is far beyond all others: column 'load' has 1e+15 in row 6," in result.err
    assert "Rows are counted from 1." in result.err


# --- far away -------------------------------------------------------------------------------------------------------


def test_standardised_values_keep_growing_and_stay_in_reach():
    scaling = Scaling.of(np.random.default_rng(0).normal(3, 1e-3, 100), np.ones(100))
    far = np.r_[1e3, 1e90, 1e97, 1e98, 1e99, 1e150, 1e300, 1.7e308]
    near = scaling.apply(np.linspace(-1e3, 1e3, 11))
    assert (near == (np.linspace(-1e3, 1e3, 11) - scaling.centre) / scaling.scale).all()
    for sign in (1, -1):
        found = sign * scaling.apply(sign * far)
        assert (np.diff(found) > 0).all()
        assert found[-1] < 1e3 * FAR
    tiny = Scaling.of(1e-300 * np.random.default_rng(0).normal(size=100), np.ones(100))
    assert np.isfinite(tiny.apply(np.array([1e300, -1e300]))).all()


def test_far_rows_are_predicted_alike_and_new_ones_do_no_harm():
    model = GPRegressor(random_state=0, max_steps=20).fit(X[:300], Y[:300])
    mean, std = model.predict([[v, 0.0, 0.0] for v in (1e6, 1e15, 1e200, 1e300, -1e300)], return_std=True)
    assert mean == pytest.approx(np.full(5, mean[0]))
    assert std == pytest.approx(np.full(5, std[0]), rel=0.1)  # all rows are as far as each other
    before = model.predict(X_TEST)
    model.update([[1e300, 0.0, 0.0], [1e15, 0.0, 0.0]], [0.0, 0.0])
    assert model.predict(X_TEST) == pytest.approx(before, abs=1e-6)
