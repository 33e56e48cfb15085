"""The heads of classifications and counts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.special import expit, log_softmax

from nearfield.calibration import choose_k
from nearfield.calibration.classes import ClassHead, ClassLeftOut, ClassMethod
from nearfield.calibration.counts import CountHead, CountLeftOut, CountMethod
from nearfield.likelihoods.classes import Bernoulli, OneAgainstAll
from nearfield.likelihoods.counts import Binomial, NegativeBinomial
from nearfield.sweep import Swept

SIZES = [1, 2, 30, 500]
EXTREMES = [0.0, 1e-300, 1.0, 40.0, 1e3, 1e6]


def swept_of(mean, variance):
    used = np.full(mean.shape, 32.0)
    return Swept(mean, variance, used, used, used, used)


def classes_of(K, auxiliary="tied"):
    return Bernoulli(2, auxiliary) if K == 2 else OneAgainstAll(K, auxiliary)


def drawn(rng, p):
    """One label of each row, with the probabilities p (n, K)."""
    return (rng.random((len(p), 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(max=p.shape[1] - 1)


def label_rows(K, n=1000, seed=0, sharpness=1.0, shift=0.0, variance=0.3, wrong=0.0):
    """Left-out labels whose log odds are `sharpness` times what the moments say, plus `shift` for the last class."""
    rng = np.random.default_rng(seed)
    mean = 2 * rng.standard_normal((n,) if K == 2 else (n, K))
    variances = np.full(mean.shape, variance)
    if K == 2:
        true = expit(sharpness * mean + shift)
        p = np.stack([1 - true, true], axis=1)
    else:
        q = expit(sharpness * mean + shift * (np.arange(K) == K - 1))
        p = q / q.sum(axis=1, keepdims=True)
    labels = np.where(rng.random(n) < wrong, rng.integers(0, K, n), drawn(rng, p))
    return ClassLeftOut(np.array([32]), swept_of(mean, variances), labels, np.ones(n))


def shares_of(rows, K):
    return np.bincount(rows.labels, minlength=K) / len(rows.labels)


def fitted(rows, K):
    return ClassMethod(classes_of(K), shares_of(rows, K), True).fit(rows)


# --- classes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [2, 3, 7])
def test_the_plain_head_gives_the_probabilities_of_the_model(K):
    rows = label_rows(K, 50)
    likelihood = classes_of(K)
    plain = ClassMethod(likelihood, shares_of(rows, K), False).fit(rows)
    mean, variance = torch.from_numpy(rows.swept.mean), torch.from_numpy(rows.swept.variance)
    p = likelihood.log_probabilities(mean, variance).exp().numpy()
    np.testing.assert_allclose(plain.predicted(rows.swept).p, p, rtol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_a_fitted_head_is_never_worse_than_the_plain_one(K, n, seed, sharpness):
    rows = label_rows(K, n, seed, sharpness)
    plain = ClassHead(classes_of(K), shares_of(rows, K))
    assert rows.nll(fitted(rows, K)) <= rows.nll(plain)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 2.5])
def test_a_known_temperature_is_recovered(K, sharpness):
    """With the latent function known exactly the slope is all that matters; other scalars can stand in for it, so the
    probabilities of fresh rows are what is compared."""
    rows, fresh = (label_rows(K, 4000, seed, sharpness, variance=1e-9) for seed in (0, 1))
    head = fitted(rows, K)
    q = expit(sharpness * fresh.swept.mean)
    truth = np.stack([1 - q, q], axis=1) if K == 2 else q / q.sum(axis=1, keepdims=True)
    assert np.abs(head.predicted(fresh.swept).p - truth).max() < 0.1
    assert np.abs(head.predicted(fresh.swept).p - truth).mean() < 0.02
    if K == 2:
        z = np.array([-1.0, 1.0])
        p = head.predicted(swept_of(z, np.full(2, 1e-9))).p
        assert np.diff(np.log(p[:, 1] / p[:, 0]))[0] / 2 == pytest.approx(sharpness, rel=0.15)


@pytest.mark.parametrize("K", [2, 3])
def test_a_shifted_balance_is_recovered(K):
    rows, fresh = (label_rows(K, 4000, seed, shift=1.5) for seed in (0, 1))
    head = fitted(rows, K)
    np.testing.assert_allclose(head.predicted(fresh.swept).p.mean(axis=0), shares_of(fresh, K), atol=0.03)


def test_exclusion_is_recovered():
    """Labels drawn from a softmax: the odds are normalised, not the probabilities."""
    rng = np.random.default_rng(0)
    mean = 2 * rng.standard_normal((4000, 3))
    p = np.exp(log_softmax(mean, axis=1))
    rows = ClassLeftOut(np.array([32]), swept_of(mean, np.full((4000, 3), 1e-9)), drawn(rng, p), np.ones(4000))
    head = fitted(rows, 3)
    assert np.abs(head.predicted(rows.swept).p - p).mean() < 0.02
    assert head.coupling > 0.5


def test_surprises_bound_the_loss_of_impossible_labels():
    rng = np.random.default_rng(0)
    mean = np.where(rng.random(2000) < 0.5, 1.0, -1.0) * 200
    labels = (mean > 0).astype(int)
    labels[:40] = 1 - labels[:40]
    rows = ClassLeftOut(np.array([32]), swept_of(mean, np.full(2000, 1e-6)), labels, np.ones(2000))
    plain = ClassHead(Bernoulli(), np.array([0.5, 0.5]))
    head = fitted(rows, 2)
    exact = -(0.02 * np.log(0.02) + 0.98 * np.log(0.98))
    assert rows.nll(plain) > 2
    assert rows.nll(head) == pytest.approx(exact, rel=0.2)


@pytest.mark.parametrize("K", [2, 3])
def test_weights_are_repetitions(K):
    rows = label_rows(K, 60)
    weights = np.random.default_rng(1).integers(1, 4, 60)
    again = np.repeat(np.arange(60), weights)
    weighted = ClassLeftOut(rows.ks, rows.swept, rows.labels, weights.astype(float))
    swept = swept_of(rows.swept.mean[again], rows.swept.variance[again])
    repeated = ClassLeftOut(rows.ks, swept, rows.labels[again], np.ones(len(again)))
    method = ClassMethod(classes_of(K), shares_of(repeated, K), True)
    one, two = method.fit(weighted), method.fit(repeated)
    np.testing.assert_allclose(one.predicted(rows.swept).p, two.predicted(rows.swept).p, atol=1e-3)
    assert weighted.nll(one) == pytest.approx(repeated.nll(one), abs=1e-12)
    assert method.scores(weighted, one)["nll"] == pytest.approx(weighted.nll(one), abs=1e-9)


@pytest.fixture(scope="module", params=[2, 3])
def both_heads(request):
    """The plain head and a fitted one, for two and for three classes."""
    rows = label_rows(request.param)
    return ClassHead(classes_of(request.param), shares_of(rows, request.param)), fitted(rows, request.param)


@pytest.mark.parametrize("variance", EXTREMES)
@pytest.mark.parametrize("size", EXTREMES)
def test_probabilities_of_extreme_moments(both_heads, variance, size):
    K = both_heads[0].likelihood.classes
    signs = np.array([[1, 1, 1], [-1, -1, -1], [1, -1, 0]])[:, :K]
    mean = size * (signs[:, 0] if K == 2 else signs).astype(float)
    swept = swept_of(mean, np.full(mean.shape, variance))
    for head in both_heads:
        p = head.predicted(swept).p
        assert np.isfinite(p).all()
        assert (p >= 0).all()
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
        if head.fitted:
            assert (p > 0).all()


@pytest.mark.parametrize("K", [2, 3])
def test_heads_fitted_to_extreme_moments_are_finite(K):
    rng = np.random.default_rng(0)
    mean = 10.0 ** rng.uniform(-3, 5, (200,) if K == 2 else (200, K)) * rng.choice(
        [-1, 1], (200,) if K == 2 else (200, K)
    )
    swept = swept_of(mean, 10.0 ** rng.uniform(-12, 6, mean.shape))
    rows = ClassLeftOut(np.array([32]), swept, rng.integers(0, K, 200), np.ones(200))
    head = fitted(rows, K)
    assert np.isfinite(head.theta()).all()
    assert np.isfinite(head.predicted(swept).p).all()
    assert np.isfinite(rows.nll(head))


def test_the_choice_of_k_goes_by_the_labels():
    """With 16 neighbours the latent function is known, with 4 or 64 it is not."""
    rng = np.random.default_rng(0)
    f = 2 * rng.standard_normal(2000)
    ks = np.array([4, 16, 64])
    noise = rng.standard_normal((2000, 3)) * np.array([3.0, 0.1, 3.0])
    swept = swept_of(f[:, None] + noise, np.full((2000, 3), 0.5))
    labels = (rng.random(2000) < expit(f)).astype(int)
    rows = ClassLeftOut(ks, swept, labels, np.ones(2000))
    for calibrated in (True, False):
        assert choose_k(rows, ClassMethod(Bernoulli(), np.array([0.5, 0.5]), calibrated)).k == 16


# --- counts ---------------------------------------------------------------------------------------------------------


def count_rows(name, n=1000, seed=0, shift=0.0, spread=1.0, dispersion=3.0):
    """Left-out counts whose latent function has the moments shifted and its variance multiplied by `spread`."""
    rng = np.random.default_rng(seed)
    mean, variance = 1 + rng.standard_normal(n), np.full(n, 0.3)
    f = mean + shift + np.sqrt(spread * variance) * rng.standard_normal(n)
    if name == "binomial":
        given = rng.integers(1, 30, n)
        y = rng.binomial(given, expit(f))
    else:
        given = rng.uniform(-0.5, 0.5, n)
        y = rng.negative_binomial(dispersion, dispersion / (dispersion + np.exp(f + given)))
    stats = np.stack([y, np.ones(n), given], axis=1).astype(float)
    return CountLeftOut(np.array([32]), swept_of(mean, variance), stats, np.ones(n))


def count_method(name, dispersion=3.0, calibrated=True):
    if name == "binomial":
        return CountMethod(Binomial(), None, calibrated)
    return CountMethod(NegativeBinomial(), dispersion, calibrated)


COUNTS = ("binomial", "negative_binomial")


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_a_fitted_head_of_counts_is_never_worse_than_the_plain_one(name, n, seed, spread):
    rows, method = count_rows(name, n, seed, spread=spread), count_method(name)
    assert rows.nll(method.fit(rows)) <= rows.nll(CountHead(method.dispersion))


@pytest.mark.parametrize("name", COUNTS)
def test_the_plain_head_of_counts_gives_the_probabilities_of_the_model(name):
    rows, method = count_rows(name, 200), count_method(name, calibrated=False)
    head = method.fit(rows)
    hyper = {} if name == "binomial" else {"log_dispersion": torch.tensor(np.log(3.0))}
    moments = (torch.from_numpy(part) for part in (rows.swept.mean, rows.swept.variance, rows.stats))
    expected = method.likelihood.log_predictive(*moments, hyper).numpy()
    np.testing.assert_allclose(rows.predict(head).logpmf(rows.stats[:, 0]), expected, atol=1e-6)
    assert rows.nll(head) == pytest.approx(-expected.mean(), abs=1e-6)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize(("shift", "spread"), [(0.5, 1.0), (0.0, 4.0), (-0.5, 0.2)])
def test_a_known_shift_and_spread_are_recovered(name, shift, spread):
    rows = count_rows(name, 4000, 0, shift, spread, dispersion=20.0)
    head = count_method(name, 20.0).fit(rows)
    assert head.shift == pytest.approx(shift, abs=0.1)
    assert np.log(spread) == pytest.approx(head.log_spread, abs=0.7)
    fresh = count_rows(name, 2000, 1, shift, spread, dispersion=20.0)
    right = CountHead(None if name == "binomial" else 20.0, shift, float(np.log(spread)))
    assert fresh.nll(head) < fresh.nll(right) + 0.01


def test_a_wrong_dispersion_is_corrected():
    rows, fresh = (count_rows("negative_binomial", 4000, seed, dispersion=2.0) for seed in (0, 1))
    head = count_method("negative_binomial", 20.0).fit(rows)
    assert fresh.nll(head) < fresh.nll(CountHead(2.0)) + 0.01
    assert fresh.nll(head) < fresh.nll(CountHead(20.0)) - 0.01


def test_without_latent_variance_the_head_is_the_textbook_distribution():
    mean, given = np.linspace(-2, 3, 50), np.linspace(0, 1, 50)
    swept, y = swept_of(mean, np.zeros(50)), np.arange(50) % 9
    head = CountHead(3.0)
    rate = np.exp(mean + given)
    theirs = scipy.stats.nbinom.logpmf(y, 3.0, 3.0 / (3.0 + rate))
    np.testing.assert_allclose(head.distribution(head.predicted(swept), given).logpmf(y), theirs, atol=1e-6)
    head = CountHead(None)
    theirs = scipy.stats.binom.logpmf(y, 9, expit(mean))
    np.testing.assert_allclose(head.distribution(head.predicted(swept), np.full(50, 9.0)).logpmf(y), theirs, atol=1e-6)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("variance", EXTREMES)
@pytest.mark.parametrize("size", [0.0, 1.0, 40.0, 300.0])
def test_counts_of_extreme_moments_have_finite_scores(name, variance, size):
    mean = np.array([size, -size, 0.0])
    head = CountHead(None if name == "binomial" else 3.0)
    given = np.full(3, 9.0 if name == "binomial" else 0.0)
    dist = head.distribution(head.predicted(swept_of(mean, np.full(3, variance))), given)
    for y in (0.0, 3.0, 9.0):
        assert np.isfinite(dist.logpmf(np.full(3, y))).all()
        assert (dist.logpmf(np.full(3, y)) <= 0).all()
    assert np.isfinite(dist.mean()).all()
    assert np.isfinite(dist.std()).all()


@pytest.mark.parametrize("name", COUNTS)
def test_heads_fitted_to_extreme_counts_are_finite(name):
    rng = np.random.default_rng(0)
    mean, variance = rng.uniform(-12, 14, 100), 10.0 ** rng.uniform(-9, 2, 100)
    y = np.floor(10.0 ** rng.uniform(0, 6, 100)) - 1
    given = y + rng.integers(1, 100, 100) if name == "binomial" else np.zeros(100)
    stats = np.stack([y, np.ones(100), given], axis=1)
    rows = CountLeftOut(np.array([32]), swept_of(mean, variance), stats, np.ones(100))
    head = count_method(name).fit(rows)
    assert np.isfinite([head.shift, head.log_spread, head.dispersion or 1.0]).all()
    assert np.isfinite(rows.nll(head))
