"""Slopes of predictions by the inputs: against central differences of the moments and of what users are told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from estimator_data import quick, through_file

from nearfield import _threads
from nearfield import gradients as module
from nearfield.covariances import Mixed, PerLatent, Shared
from nearfield.families.gaussian import Gaussian
from nearfield.families.outputs import GaussianOutputs
from nearfield.gradients import moment_slopes
from nearfield.kernels import KERNELS, find_kernel
from nearfield.means import MEANS
from nearfield.model import Model
from nearfield.rows import Rows
from nearfield.sweep import Sweeper
from nearfield.warps import Warps

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning", "ignore:.*rows are few for.*")

MIXING = np.array([[1.0, 0.3], [-0.5, 0.8]])


def made(family, Y, n, kernel="auto", kind=Shared, mean="constant", bent=True, seed=1):
    """A sweeper of n rows under a model whose parameters are drawn at random."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    warps = Warps.of(X, np.ones(n), np.array([bent, False]))
    given = (find_kernel(kernel), family.latents, warps)
    covariance = Mixed(*given, MIXING) if kind is Mixed else kind(*given, family.kernel_scales)
    model = Model.initial(family, covariance, MEANS[mean])
    drawn = {name: value + 0.3 * rng.standard_normal(value.shape) for name, value in model.parameters.items()}
    rows = Rows.of(family, X, family.observe(Y, np.ones(n)))
    return Sweeper(model.with_parameters(drawn), rows)


def targets(n, outputs=1, missing=0.0):
    Y = np.random.default_rng(2).standard_normal((n, outputs))
    Y[np.random.default_rng(3).random(Y.shape) < missing] = np.nan
    return Y if outputs > 1 else Y[:, 0]


def assert_slopes(sweeper, k, tolerance=1e-6):
    """Slopes of all moments equal central differences, at rows near which nothing changes its place."""
    query = np.random.default_rng(4).uniform(-1.5, 1.5, (12, 2))
    ours = moment_slopes(sweeper, query, k)
    for e in range(2):
        off = np.zeros(2)
        off[e] = 1e-6
        up, down = sweeper.new(query + off, k), sweeper.new(query - off, k)
        for name, slopes in ours._asdict().items():
            numeric = (getattr(up, name) - getattr(down, name)) / 2e-6
            np.testing.assert_allclose(slopes[..., e], numeric, atol=tolerance, rtol=tolerance, err_msg=name)


@pytest.mark.parametrize("k", [8, 39])
@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_slopes_of_moments_equal_central_differences(kernel, mean, k):
    assert_slopes(made(Gaussian(), targets(40), 40, kernel, mean=mean), k)


@pytest.mark.parametrize("k", [6, 39])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("kind", [Shared, PerLatent, Mixed])
@pytest.mark.parametrize("one_scale", [True, False])
def test_slopes_of_several_outputs(kind, missing, one_scale, k):
    family = GaussianOutputs(2, one_scale=one_scale, complete=not missing)
    assert_slopes(made(family, targets(40, 2, missing), 40, kind=kind), k)


def test_fewer_rows_than_neighbours():
    assert_slopes(made(Gaussian(), targets(3), 3), 2)
    assert_slopes(made(GaussianOutputs(2), targets(3, 2), 3, kind=Mixed), 30)
    assert_slopes(made(Gaussian(), targets(1), 1, bent=False), 1)


def test_equal_rows_and_a_kernel_with_a_kink_at_a_row_have_finite_slopes():
    for kernel in KERNELS:
        sweeper = made(Gaussian(), targets(40), 40, kernel)
        for k in (8, 39):
            found = moment_slopes(sweeper, sweeper.rows.inputs[:5], k)
            assert all(np.isfinite(part).all() for part in found)


def assert_gradient(model, X, scales, units, tolerance=1e-4, uncertainty="observation"):
    """`predict_gradient` equals central differences of `predict`, both by columns of these scales (d,)."""
    found = model.predict_gradient(X, uncertainty=uncertainty)
    for e, scale in enumerate(scales):
        step = 1e-5 * scale
        up, down = X.copy(), X.copy()
        up[:, e] += step
        down[:, e] -= step
        above, below = (model.predict(Z, return_std=True, uncertainty=uncertainty) for Z in (up, down))
        for ours, high, low in zip(found, above, below, strict=True):
            off = np.abs(ours[..., e] - (high - low) / (2 * step)) * scale / units
            assert np.quantile(off, 0.9) < tolerance  # a tenth may lie where neighbours change, or at a knot


def table(n, seed=0):
    """Columns in units that differ by powers of ten, one of them constant."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3)) * [1e4, 1e-3, 0.0] + [0, 0, 7]
    return X, 50 * np.sin(X[:, 0] / 1e4) * np.exp(X[:, 1] / 2e-3) + rng.standard_normal(n)


@pytest.mark.parametrize(
    ("n", "arguments"),
    [
        (80, {}),
        (80, {"mean": "linear", "kernel": "rbf"}),
        (80, {"likelihood": "student_t"}),
        (400, {"k": 20}),
        (400, {"k": 20, "predictive": "plain", "kernel": "matern32"}),
    ],
)
def test_what_users_are_told_equals_central_differences(n, arguments):
    X, y = table(n)
    model = quick(**arguments).fit(X, y)
    new = table(40, seed=1)[0]
    scales = [1e4, 1e-3, 1.0]
    assert_gradient(model, new, scales, 50)
    assert_gradient(model, new, scales, 50, uncertainty="latent")
    found = model.predict_gradient(new)
    assert found.mean.shape == found.std.shape == new.shape
    np.testing.assert_allclose(found.mean[:, 2], 0, atol=1e-200)
    np.testing.assert_allclose(found.std[:, 2], 0, atol=1e-200)


def test_several_outputs_columns_of_y_and_later_rows():
    X, y = table(90)
    Y = np.stack([y, 0.01 * np.cos(X[:, 0] / 1e4)], axis=1)
    new, scales = table(20, seed=1)[0], [1e4, 1e-3, 1.0]
    for outputs in ("shared", "independent", "lmc"):
        model = quick(outputs=outputs).fit(X, Y)
        assert model.predict_gradient(new).std.shape == (20, 2, 3)
        assert_gradient(model, new, scales, np.array([50, 0.01]), tolerance=3e-4)
    one, column = quick().fit(X, y), quick().fit(X, y[:, None])
    np.testing.assert_array_equal(column.predict_gradient(new).mean[:, 0], one.predict_gradient(new).mean)
    one.update(new[:5], np.zeros(5))
    assert_gradient(one, new[5:], scales, 50)


def test_columns_that_are_no_numbers_and_missing_cells():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.standard_normal(80), "t": rng.choice(["u", "v", "w"], 80), "b": rng.standard_normal(80)})
    X.loc[::9, "b"] = np.nan
    y = X["a"] + (X["t"] == "u") + X["b"].fillna(0.5) + 0.1 * rng.standard_normal(80)
    model = quick().fit(X, y)
    found = model.predict_gradient(X.iloc[:20])
    missing = X["b"].isna().to_numpy()[:20]
    for part in found:
        assert part.shape == (20, 3)
        assert np.isnan(part[:, 1]).all()
        assert np.isfinite(part[:, 0]).all()
        np.testing.assert_array_equal(np.isnan(part[:, 2]), missing)
    new = X.iloc[~X["b"].isna().to_numpy()].iloc[:9]
    up, down = new.assign(b=new["b"] + 1e-5), new.assign(b=new["b"] - 1e-5)
    np.testing.assert_allclose(
        np.median(model.predict_gradient(new.assign(b=new["b"] + 1e-3)).mean[:, 2]),
        np.median((model.predict(up.assign(b=up["b"] + 1e-3)) - model.predict(down.assign(b=down["b"] + 1e-3))) / 2e-5),
        rtol=1e-3,
    )


def test_the_same_bits_for_any_threads_and_after_loading(tmp_path, monkeypatch):
    X, y = table(300)
    model, new = quick(k=16).fit(X, y), table(50, seed=1)[0]
    found = model.predict_gradient(new)
    monkeypatch.setattr(_threads, "thread_count", lambda: 1)
    monkeypatch.setattr(module, "_WHOLE_NUMBERS", 64)
    alone = through_file(model, tmp_path).predict_gradient(new)
    for ours, theirs in zip(found, alone, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_bad_requests():
    X, y = table(60)
    with pytest.raises(Exception, match="not fitted"):
        quick().predict_gradient(X)
    model = quick().fit(X, y)
    with pytest.raises(ValueError, match="uncertainty is 'both'"):
        model.predict_gradient(X, uncertainty="both")
    with pytest.raises(ValueError, match="features"):
        model.predict_gradient(X[:, :2])
