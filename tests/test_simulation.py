"""Joint prediction: against the exact posterior by dense algebra, marginals, and samples of every family."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from dense import bent, correlation, rough_of
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts

from nearfield import GPRegressor, simulation
from nearfield.conditional.sequence import draw, link
from nearfield.copula import refuse_too_large, to_marginals, with_noise
from nearfield.estimators import _joint
from nearfield.kernels import KERNELS


def wavy(n=200, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) + noise * rng.standard_normal(n)


@pytest.fixture(scope="module")
def smooth():
    """A model of all rows whose plain predictive is the exact posterior."""
    return quick(predictive="plain", k=199).fit(*wavy())


@pytest.fixture(scope="module")
def local():
    """A model of few neighbours, with a head that has heavy tails and error bars that vary."""
    model = quick(k=24).fit(*wavy(600))
    predictor = model._fit.predictor
    head = replace(predictor.head, df=4.0, roughness=0.7, slope=0.3, lowest=-1.0, highest=1.0)
    object.__setattr__(predictor, "head", head)
    return model


def new_rows(n, seed=1):
    return np.random.default_rng(seed).uniform(-1.5, 1.5, (n, 2))


def exact(model, X):
    """Posterior covariance (n, n) of the latent function at X in the units of the target, by dense algebra."""
    fit, own = model._fit, model._fit.predictor.model
    p, rows = own.parameters, fit.predictor.rows
    A, B = bent(own, rows.inputs), bent(own, fit.inputs.apply(X))
    rough, lengths = rough_of(own), p["log_lengths"]
    noise = (own.noise / own.scale2)[0] / rows.observed["weight"]
    K = correlation(A, A, lengths, rough) + np.diag(noise)
    cross = correlation(A, B, lengths, rough)
    posterior = correlation(B, B, lengths, rough) - cross.T @ np.linalg.solve(K, cross)
    return posterior * own.scale2[0] * model.target_std_**2


def standardised(covariance):
    size = np.sqrt(np.diagonal(covariance))
    return covariance / size[:, None] / size


def latent_covariance(model, X):
    return model.predict(X, return_cov=True, uncertainty="latent")[1]


# --- the exact posterior ----------------------------------------------------------------------------------------------


def test_covariances_are_those_of_the_exact_posterior(smooth):
    X = new_rows(300)
    mean, latent = smooth.predict(X, return_cov=True, uncertainty="latent")
    np.testing.assert_allclose(latent, exact(smooth, X), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(mean, smooth.predict(X))
    _, noisy = smooth.predict(X, return_cov=True)
    np.testing.assert_allclose(noisy - latent, smooth.noise_std_**2 * np.eye(300), atol=1e-6)
    for uncertainty, found in (("latent", latent), ("observation", noisy)):
        std = smooth.predict(X, return_std=True, uncertainty=uncertainty)[1]
        np.testing.assert_allclose(np.sqrt(np.diagonal(found)), std, rtol=1e-10)
        np.testing.assert_array_equal(found, found.T)
        assert np.linalg.eigvalsh(found).min() > -1e-10


@pytest.mark.parametrize("uncertainty", ["latent", "observation"])
def test_samples_have_the_covariances_of_the_exact_posterior(smooth, uncertainty):
    X, n = new_rows(300), 20_000
    samples = smooth.sample_y(X, n, random_state=3, uncertainty=uncertainty)
    wanted = exact(smooth, X) + (smooth.noise_std_**2 * np.eye(300) if uncertainty == "observation" else 0.0)
    off = (samples - smooth.predict(X)[:, None]) / np.sqrt(np.diagonal(wanted))[:, None]
    assert np.abs(off.mean(axis=1)).max() < 5 / np.sqrt(n)
    error = off @ off.T / n - standardised(wanted)
    assert np.abs(error).max() < 6 * np.sqrt(2 / n)
    assert np.sqrt(np.mean(error**2)) < 1.5 / np.sqrt(n)


def test_rows_drawn_one_after_the_other_vary_as_the_exact_posterior(smooth, monkeypatch):
    X = new_rows(300)
    wanted = standardised(exact(smooth, X))
    monkeypatch.setattr(simulation, "HEAD", 60)
    monkeypatch.setattr(simulation, "DATA", 400)
    found = standardised(smooth.predict(X, return_cov=True, uncertainty="latent")[1])
    assert np.abs(found - wanted).max() < 0.05
    assert np.sqrt(np.mean((found - wanted) ** 2)) < 0.005
    monkeypatch.setattr(simulation, "DRAWN", 300)  # all rows before
    monkeypatch.setattr(simulation, "_SLACK", 1e-10)
    found = standardised(smooth.predict(X, return_cov=True, uncertainty="latent")[1])
    assert np.abs(found - wanted).max() < 1e-4


@pytest.mark.parametrize("most", [2000, 100])
def test_rows_that_are_not_drawn_together_have_the_right_variance(smooth, monkeypatch, most):
    """With less data for later rows than for predictions, whether variances are computed or estimated."""
    X = new_rows(800)
    monkeypatch.setattr(simulation, "HEAD", 200)
    monkeypatch.setattr(simulation, "DATA", 64)
    monkeypatch.setattr(simulation, "_EXACT", most)
    variance = _standard(smooth, X, 4000).var(axis=1)
    assert abs(variance.mean() - 1) < 0.02
    assert np.abs(variance - 1).max() < (0.12 if most == 2000 else 0.4)


def _standard(model, X, n):
    samples = model.sample_y(X, n, uncertainty="latent")
    mean, std = model.predict(X, return_std=True, uncertainty="latent")
    return (samples - mean[:, None]) / std[:, None]


def test_models_with_few_neighbours(local, monkeypatch):
    """Rows are drawn from the data that predictions have and from rows before: not a sample, nothing drawn together."""
    monkeypatch.setattr(simulation, "MOST_GIVEN", 0)
    X = new_rows(400)
    u = local.predict_dist(X).cdf(local.sample_y(X, 2000).T)
    assert np.abs(np.mean(u < 0.05, axis=0) - 0.05).max() < 5 * np.sqrt(0.05 / 2000)
    assert np.abs(np.mean(u < 0.5, axis=0) - 0.5).max() < 5 * np.sqrt(0.25 / 2000)


def test_few_neighbours_keep_the_correlations_of_the_exact_posterior(monkeypatch):
    """Whose share in each other falls off within them: few rows drawn before are enough where k is small."""
    model = quick(predictive="plain", k=16, max_steps=20).fit(*wavy(500))
    monkeypatch.setattr(simulation, "MOST_GIVEN", 0)
    monkeypatch.setattr(simulation, "HEAD", 40)
    X = new_rows(400)
    wanted, found = standardised(exact(model, X)), standardised(latent_covariance(model, X))
    close = np.abs(wanted - np.eye(400)) > 0.5
    assert np.sqrt(np.mean((found - wanted) ** 2)) < 0.05
    assert 0.9 < np.mean(1 - found[close]) / np.mean(1 - wanted[close]) < 1.1  # as rough
    monkeypatch.setattr(simulation, "_FEW_DRAWN", 60)
    monkeypatch.setattr(simulation, "DRAWN", 60)
    given_more = standardised(latent_covariance(model, X))
    assert np.sqrt(np.mean((found - given_more) ** 2)) < 0.02


@pytest.mark.parametrize("drawn", [32, 256])
@pytest.mark.parametrize("spread", [0.0, 0.02, 0.3])
def test_sizes_are_believed_as_far_as_they_differ_by_more_than_chance(drawn, spread):
    rng = np.random.default_rng(0)
    true = np.exp(0.1 + spread * rng.standard_normal((20_000, 1)))
    found, error = simulation._believed(true**2 * rng.chisquare(drawn, true.shape), drawn)
    off = np.log(found / true)
    assert abs(off.mean()) < 0.003
    assert abs(off.std() - error) < (0.004 if spread else 0.01)
    assert off.std() < min(spread, np.sqrt(0.5 / drawn)) + 0.004


# --- marginals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uncertainty", ["latent", "observation"])
def test_samples_of_a_row_follow_its_predictive_distribution(local, uncertainty):
    X, n = new_rows(40), 4000
    samples, dist = local.sample_y(X, n, 5, uncertainty=uncertainty), local.predict_dist(X, uncertainty=uncertainty)
    assert dist.dist.name == "t"
    u = np.sort(dist.cdf(samples.T), axis=0)
    distance = np.abs(u - (np.arange(n) + 0.5)[:, None] / n).max(axis=0)
    assert distance.max() < 2.2 / np.sqrt(n)  # of Kolmogorov: beyond it once in 6,000 times


@pytest.mark.parametrize("df", [2.1, 5.0, 1e4, np.inf])
def test_normals_become_quantiles(df):
    z = np.array([[-11.0, -6.3, -1.0, 0.0, 1e-9, 0.7, 3.2, 8.1]])
    found = z.copy()
    to_marginals(found, df, np.array([2.0]), np.array([3.0]))
    tail = scipy.stats.norm.sf(np.abs(z))
    wanted = np.sign(z) * scipy.stats.t.isf(tail, df) if np.isfinite(df) else z
    np.testing.assert_allclose(found, 2 + 3 * wanted, rtol=1e-7, atol=1e-12)


def test_noise_takes_its_share():
    z = np.ones((3, 100_000))
    with_noise(z, np.array([0.0, 0.36, 1.0]), np.random.default_rng(0))
    np.testing.assert_allclose(z.mean(axis=1), [1.0, 0.8, 0.0], atol=0.02)
    np.testing.assert_allclose(z.std(axis=1), [0.0, 0.6, 1.0], atol=0.02)


# --- the compiled parts against formulas of their own -----------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2])
def test_links_are_those_of_dense_algebra(outputs):
    rng = np.random.default_rng(0)
    points, query = rng.standard_normal((30, 2)), rng.standard_normal((5, 2))
    mixing = np.ones((1, 1)) if outputs == 1 else np.array([[1.0, 0.3], [-0.5, 0.8]])
    lengths, noises = np.log(rng.uniform(0.5, 1.5, (len(mixing), 2))), rng.uniform(0.1, 0.3, (30, outputs))
    noises[3, 0] = np.inf
    ids = np.array([rng.permutation(30)[:12] for _ in range(5)])
    ids[2, 9:] = -1
    found = link(KERNELS["matern52"], lengths, np.zeros(0), mixing, points, noises, query, ids, 7)

    def covariance(A, B):
        each = [correlation(A, B, own) for own in lengths]
        total = sum(np.einsum("ij,p,r->ipjr", one, w, w) for one, w in zip(each, mixing.T, strict=True))
        return total.reshape(len(A) * outputs, len(B) * outputs)

    for i in range(5):
        near = ids[i][ids[i] >= 0]
        own_noises = noises[near].ravel()
        seen = np.isfinite(own_noises)
        K = covariance(points[near], points[near])[np.ix_(seen, seen)] + np.diag(own_noises[seen])
        cross = covariance(points[near], query[i : i + 1])[seen]
        drawn = (np.arange(len(near)) >= 7).repeat(outputs)
        weights = np.zeros((len(seen), outputs))
        weights[seen] = np.linalg.solve(K, cross)
        prior = mixing @ mixing.T
        got = found.weights[i].transpose(1, 2, 0).reshape(-1, outputs)
        np.testing.assert_allclose(got[: drawn.sum()], weights[drawn], atol=1e-10)
        assert (got[drawn.sum() :] == 0).all()
        rest = prior - cross.T @ np.linalg.solve(K, cross)
        np.testing.assert_allclose(found.factor[i] @ found.factor[i].T, rest, atol=1e-10)
        data = ~drawn[seen]
        alone = prior - cross[data].T @ np.linalg.solve(K[np.ix_(data, data)], cross[data])
        np.testing.assert_allclose(found.variance[i], np.diagonal(alone), atol=1e-10)


def test_draws_follow_the_links():
    rng = np.random.default_rng(1)
    order, ids = np.array([2, 0, 1]), np.array([[2, -1], [0, 2], [-1, -1]])
    weights, factor = rng.standard_normal((3, 2, 2, 2)), np.tril(rng.standard_normal((3, 2, 2)))
    z = rng.standard_normal((3, 2, 70))
    wanted = np.einsum("ipq,iqs->ips", factor, z)
    wanted[0] += np.einsum("pq,qs->ps", weights[0, :, 0], wanted[2])
    wanted[1] += np.einsum("pjq,jqs->ps", weights[1], wanted[[0, 2]])
    draw(order, ids, weights, factor, z)
    np.testing.assert_allclose(z, wanted, atol=1e-12)


def test_rows_before_are_the_nearest():
    points = np.random.default_rng(0).standard_normal((500, 2))
    order = np.random.default_rng(1).permutation(500)
    rank = np.argsort(order)
    found = simulation._earlier(points, order, 10)
    for i in range(500):
        before = order[: rank[i]]
        nearest = before[np.argsort(((points[before] - points[i]) ** 2).sum(axis=1))][:10]
        np.testing.assert_array_equal(found[i][found[i] >= 0], nearest)


# --- the same bits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [1000, 50])
def test_samples_have_the_same_bits_for_any_threads_and_blocks(local, monkeypatch, tmp_path, head):
    monkeypatch.setattr(simulation, "HEAD", head)
    X = new_rows(300)
    monkeypatch.setenv("NEARFIELD_THREADS", "1")
    one = local.sample_y(X, 130, random_state=7)
    monkeypatch.setenv("NEARFIELD_THREADS", "3")
    monkeypatch.setattr(simulation, "_BLOCK_ROWS", 37)
    np.testing.assert_array_equal(local.sample_y(X, 130, random_state=7), one)
    local.save(tmp_path / "model")
    np.testing.assert_array_equal(GPRegressor.load(tmp_path / "model").sample_y(X, 130, random_state=7), one)
    assert not np.array_equal(local.sample_y(X, 130, random_state=8), one)
    by_state = local.sample_y(X, 2, random_state=np.random.RandomState(1))
    np.testing.assert_array_equal(by_state, local.sample_y(X, 2, random_state=1))


def test_the_order_of_rows_does_not_matter_for_covariances(local, monkeypatch):
    monkeypatch.setattr(simulation, "HEAD", 50)
    X = new_rows(200)
    back = np.argsort(np.random.default_rng(0).permutation(200))
    _, one = local.predict(X, return_cov=True)
    _, other = local.predict(X[back], return_cov=True)
    np.testing.assert_allclose(other, one[np.ix_(back, back)], atol=1e-10)


# --- awkward rows -----------------------------------------------------------------------------------------------------


def test_equal_rows_share_the_latent_function_and_not_the_noise(local):
    X = new_rows(60)
    twice = np.concatenate([X, X])
    latent = local.sample_y(twice, 5, uncertainty="latent")
    np.testing.assert_array_equal(latent[:60], latent[60:])
    noisy = local.sample_y(twice, 5)
    assert (noisy[:60] != noisy[60:]).all()
    _, covariance = local.predict(twice, return_cov=True, uncertainty="latent")
    np.testing.assert_allclose(covariance[:60, 60:], covariance[:60, :60], atol=1e-12)


def test_one_row_one_sample(local):
    assert local.sample_y(new_rows(1)).shape == (1, 1)
    mean, covariance = local.predict(new_rows(1), return_cov=True)
    assert mean.shape == (1,)
    assert covariance.shape == (1, 1)


def test_columns_of_targets_keep_their_shape():
    X, y = wavy(60)
    model = quick().fit(X, y[:, None])
    assert model.sample_y(X, 4).shape == (60, 1, 4)
    assert model.predict(X, return_cov=True)[1].shape == (60, 60)


@pytest.mark.parametrize("head", [1000, 20])
def test_training_rows_without_noise_are_what_they_were(monkeypatch, head):
    monkeypatch.setattr(simulation, "HEAD", head)
    X, y = wavy(150, noise=0.0)
    model = quick(predictive="plain", kernel="rbf").fit(X, y)
    samples = model.sample_y(np.concatenate([X, X + 1e-9]), 20, uncertainty="latent")
    assert np.isfinite(samples).all()
    assert np.abs(samples[:150] - y[:, None]).max() < 0.05 * y.std()


def test_dense_grids_of_smooth_functions_stay_where_they_should(smooth, monkeypatch):
    """Weights on many close rows are large and of both signs: nothing may grow."""
    monkeypatch.setattr(simulation, "HEAD", 30)
    side = np.linspace(-0.2, 0.2, 30)
    X = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    z = _standard(smooth, X, 300)
    assert np.abs(z).max() < 8


# --- several outputs, classes, counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", ["lmc", "independent", "shared"])
def test_several_outputs(outputs, monkeypatch):
    X, y = wavy(150)
    Y = np.stack([y, -0.8 * y + 0.1 * np.random.default_rng(0).standard_normal(150)], axis=1)
    Y[::7, 1] = np.nan
    model = quick(outputs=outputs, predictive="plain").fit(X, Y)
    new, n = new_rows(40), 6000
    mean, covariance = model.predict(new, return_cov=True, uncertainty="latent")
    for head in (1000, 10):
        monkeypatch.setattr(simulation, "HEAD", head)
        samples = model.sample_y(new, n, uncertainty="latent")
        assert samples.shape == (40, 2, n)
        off = samples - mean[:, :, None]
        found = np.einsum("ips,iqs->ipq", off, off) / n
        size = np.sqrt(np.einsum("ipp->ip", covariance))
        relative = (found - covariance) / size[:, :, None] / size[:, None, :]
        assert np.abs(relative).max() < 0.15
        assert np.abs(relative.mean(axis=0)).max() < 0.03


def test_outputs_are_coupled_as_far_as_the_head_believes():
    X, y = wavy(120)
    model = quick(predictive="plain").fit(X, np.stack([y, y + 0.05 * X[:, 0]], axis=1))
    predictor = model._fit.predictor
    object.__setattr__(predictor.head, "coupling", 0.4)
    new = new_rows(20)
    samples = model.sample_y(new, 8000, uncertainty="latent")
    _, covariance = model.predict(new, return_cov=True, uncertainty="latent")
    off = samples - samples.mean(axis=2, keepdims=True)
    found = np.einsum("is,is->i", off[:, 0], off[:, 1]) / 8000
    size = np.sqrt(covariance[:, 0, 0] * covariance[:, 1, 1])
    np.testing.assert_allclose(found / size, covariance[:, 0, 1] / size, atol=0.06)


@pytest.mark.parametrize("classes", [2, 4])
def test_labels_have_their_probabilities_and_neighbours_agree(classes):
    X, y = labelled(150, classes)
    model = quick_classifier().fit(X, np.array(["a", "b", "c", "d"])[y])
    new = np.concatenate([new_rows(30), new_rows(30) + 1e-3])
    n = 4000
    samples = model.sample_y(new, n, 2)
    assert samples.shape == (60, n)
    shares = np.stack([(samples == label).mean(axis=1) for label in model.classes_], axis=1)
    p = model.predict_proba(new)
    assert np.abs(shares - p).max() < 4.5 * np.sqrt(0.25 / n)
    together = (samples[:30] == samples[30:]).mean(axis=1)
    apart = (p[:30] * p[30:]).sum(axis=1)
    assert (together > apart - 4.5 * np.sqrt(0.25 / n)).all()
    assert together.mean() > apart.mean()
    latent = model.sample_y(new, n, uncertainty="latent")
    assert latent.shape == ((60, n) if classes == 2 else (60, 4, n))
    assert np.abs(latent[:30] - latent[30:]).mean() < 0.1 * latent.std()


@pytest.mark.parametrize("likelihood", ["negative_binomial", "binomial"])
def test_counts_follow_their_distribution(likelihood):
    X, y, _ = counted(120)
    given = {"exposure": 2.0} if likelihood == "negative_binomial" else {"trials": 200}
    model = quick_counts(likelihood=likelihood).fit(X, np.minimum(y, 200), **given)
    new, n = new_rows(25), 4000
    samples, dist = model.sample_y(new, n, **given), model.predict_dist(new, **given)
    assert samples.shape == (25, n)
    assert (samples == np.floor(samples)).all()
    for x in (0, 3, 10, 30):
        assert np.abs((samples <= x).mean(axis=1) - dist.cdf(x)).max() < 4.5 * np.sqrt(0.25 / n)
    f = model.sample_y(new, n, uncertainty="latent", **given)
    assert f.shape == (25, n)
    assert np.isfinite(f).all()


def test_counts_of_a_family_with_a_distribution_of_its_own(monkeypatch):
    X, y, _ = counted(80)
    model = quick_counts().fit(X, y)
    dist = model.predict_dist(X[:5])

    class Own:
        def ppf(self, q):
            return dist.ppf(q)

    monkeypatch.setattr(model, "_distribution", lambda predicted, observed: Own(), raising=False)
    samples = model.sample_y(X[:5], 200)
    assert np.abs((samples <= dist.median()[:, None]).mean(axis=1) - dist.cdf(dist.median())).max() < 0.16


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_mistakes_are_named(local, monkeypatch):
    X = new_rows(3)
    for wrong in (0, -1, 1.5, "many", True):
        with pytest.raises(ValueError, match=r"n_samples is .*: expected a whole number of at least 1"):
            local.sample_y(X, wrong)
    with pytest.raises(ValueError, match="uncertainty is 'noise': expected one of 'observation', 'latent'"):
        local.sample_y(X, uncertainty="noise")
    with pytest.raises(MemoryError, match=r"samples of 3 x 1 x 1,000,000,000,000 numbers take .* GB .* fewer rows"):
        local.sample_y(X, 10**12)
    with pytest.raises(ValueError, match="features"):
        local.sample_y(X[:, :1])
    monkeypatch.setattr(_joint, "MOST_ROWS", 5)
    with pytest.raises(ValueError, match=r"return_cov with 6 rows .* at most 5 rows are possible. Use sample_y"):
        local.predict(new_rows(6), return_cov=True)


def test_what_fits_is_not_refused(monkeypatch):
    monkeypatch.setattr("nearfield.copula.free_memory", lambda: None)
    refuse_too_large((10**9, 10**9), "samples")
    monkeypatch.setattr("nearfield.copula.free_memory", lambda: 1000)
    refuse_too_large((50,), "samples", 2)
    with pytest.raises(MemoryError):
        refuse_too_large((51,), "samples", 2)
