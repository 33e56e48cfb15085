"""The heads of classifications and counts."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats
from scipy.special import expit, log_expit, log_softmax, softmax

from nearfield.calibration import choose_k, trials
from nearfield.families.classes import Bernoulli, OneAgainstAll
from nearfield.families.counts import Binomial, NegativeBinomial
from nearfield.heads.classes import ClassCalibrator, ClassHead, LeftOutLabels, negative_log_posterior
from nearfield.heads.counts import CountCalibrator, CountHead, LeftOutCounts
from nearfield.moments import Moments
from nearfield.persistence import ModelFileError

SIZES = [1, 2, 30, 500]
EXTREMES = [0.0, 1e-300, 1.0, 40.0, 1e3, 1e6]


def moments_of(mean, variance):
    """Moments (b, C), or (b, q, C), of rows that were predicted from 32 others."""
    used = np.full(mean.shape, 32.0)
    return Moments(mean, variance, used, used, used, used)


def latents_of(K):
    return 1 if K == 2 else K


def calibrator_of(rows, K, calibrated=True):
    return ClassCalibrator(ClassHead(shares_of(rows, K), offsets=np.zeros(latents_of(K))), calibrated)


def plain_head(rows, K):
    return ClassHead(shares_of(rows, K), offsets=np.zeros(latents_of(K)))


def drawn(rng, p):
    """One label of each row, with the probabilities p (n, K)."""
    return (rng.random((len(p), 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(max=p.shape[1] - 1)


def label_rows(K, n=1000, seed=0, sharpness=1.0, shift=0.0, variance=0.3, wrong=0.0):
    """Left-out labels whose log odds are `sharpness` times what the moments say, plus `shift` for the last class."""
    rng = np.random.default_rng(seed)
    mean = 2 * rng.standard_normal((n, latents_of(K)))
    variances = np.full(mean.shape, variance)
    if K == 2:
        true = expit(sharpness * mean + shift)
        p = np.concatenate([1 - true, true], axis=1)
    else:
        q = expit(sharpness * mean + shift * (np.arange(K) == K - 1))
        p = q / q.sum(axis=1, keepdims=True)
    labels = np.where(rng.random(n) < wrong, rng.integers(0, K, n), drawn(rng, p))
    return LeftOutLabels(np.array([32]), moments_of(mean, variances), labels, np.ones(n))


def shares_of(rows, K):
    return np.bincount(rows.labels, minlength=K) / len(rows.labels)


def fitted(rows, K):
    return calibrator_of(rows, K).fit(rows)


# --- classes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [2, 3, 7])
def test_the_plain_head_gives_the_probabilities_of_the_model(K):
    rows = label_rows(K, 50)
    plain = calibrator_of(rows, K, calibrated=False).fit(rows)
    family = Bernoulli() if K == 2 else OneAgainstAll(K)
    every = [{"counts": np.tile(np.eye(K)[label], (50, 1))} for label in range(K)]
    p = np.exp([family.score(seen, rows.moments.mean, rows.moments.variance, {}).value for seen in every]).T
    np.testing.assert_allclose(plain.predicted(rows.moments).p, p, rtol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_a_fitted_head_is_never_worse_than_the_plain_one(K, n, seed, sharpness):
    rows = label_rows(K, n, seed, sharpness)
    plain = plain_head(rows, K)
    assert rows.nll(fitted(rows, K)) <= rows.nll(plain)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 2.5])
def test_a_known_temperature_is_recovered(K, sharpness):
    """With the latent function known exactly the slope is all that matters; other scalars can stand in for it, so the
    probabilities of fresh rows are what is compared."""
    rows, fresh = (label_rows(K, 4000, seed, sharpness, variance=1e-9) for seed in (0, 1))
    head = fitted(rows, K)
    q = expit(sharpness * fresh.moments.mean)
    truth = np.concatenate([1 - q, q], axis=1) if K == 2 else q / q.sum(axis=1, keepdims=True)
    assert np.abs(head.predicted(fresh.moments).p - truth).max() < 0.1
    assert np.abs(head.predicted(fresh.moments).p - truth).mean() < 0.02
    if K == 2:
        z = np.array([[-1.0], [1.0]])
        p = head.predicted(moments_of(z, np.full((2, 1), 1e-9))).p
        assert np.diff(np.log(p[:, 1] / p[:, 0]))[0] / 2 == pytest.approx(sharpness, rel=0.15)


@pytest.mark.parametrize("K", [2, 3])
def test_a_shifted_balance_is_recovered(K):
    rows, fresh = (label_rows(K, 4000, seed, shift=1.5) for seed in (0, 1))
    head = fitted(rows, K)
    np.testing.assert_allclose(head.predicted(fresh.moments).p.mean(axis=0), shares_of(fresh, K), atol=0.03)


def test_exclusion_is_recovered():
    """Labels drawn from a softmax: the odds are normalised, not the probabilities."""
    rng = np.random.default_rng(0)
    mean = 2 * rng.standard_normal((4000, 3))
    p = np.exp(log_softmax(mean, axis=1))
    rows = LeftOutLabels(np.array([32]), moments_of(mean, np.full((4000, 3), 1e-9)), drawn(rng, p), np.ones(4000))
    head = fitted(rows, 3)
    assert np.abs(head.predicted(rows.moments).p - p).mean() < 0.02
    assert head.coupling > 0.5


def test_surprises_bound_the_loss_of_impossible_labels():
    rng = np.random.default_rng(0)
    mean = np.where(rng.random((2000, 1)) < 0.5, 1.0, -1.0) * 200
    labels = (mean[:, 0] > 0).astype(int)
    labels[:40] = 1 - labels[:40]
    rows = LeftOutLabels(np.array([32]), moments_of(mean, np.full((2000, 1), 1e-6)), labels, np.ones(2000))
    plain = ClassHead(np.array([0.5, 0.5]))
    head = fitted(rows, 2)
    exact = -(0.02 * np.log(0.02) + 0.98 * np.log(0.98))
    assert rows.nll(plain) > 2
    assert rows.nll(head) == pytest.approx(exact, rel=0.2)


@pytest.mark.parametrize("K", [2, 3])
def test_weights_are_repetitions(K):
    rows = label_rows(K, 60)
    weights = np.random.default_rng(1).integers(1, 4, 60)
    again = np.repeat(np.arange(60), weights)
    weighted = LeftOutLabels(rows.ks, rows.moments, rows.labels, weights.astype(float))
    moments = moments_of(rows.moments.mean[again], rows.moments.variance[again])
    repeated = LeftOutLabels(rows.ks, moments, rows.labels[again], np.ones(len(again)))
    method = calibrator_of(repeated, K)
    one, two = method.fit(weighted), method.fit(repeated)
    np.testing.assert_allclose(one.predicted(rows.moments).p, two.predicted(rows.moments).p, atol=1e-3)
    assert weighted.nll(one) == pytest.approx(repeated.nll(one), abs=1e-12)
    assert method.scores(weighted, one)["nll"] == pytest.approx(weighted.nll(one), abs=1e-9)


@pytest.fixture(scope="module", params=[2, 3])
def both_heads(request):
    """The plain head and a fitted one, for two and for three classes."""
    rows = label_rows(request.param)
    return plain_head(rows, request.param), fitted(rows, request.param)


@pytest.mark.parametrize("variance", EXTREMES)
@pytest.mark.parametrize("size", EXTREMES)
def test_probabilities_of_extreme_moments(both_heads, variance, size):
    C = len(both_heads[0].offsets)
    mean = size * np.array([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0], [1.0, -1.0, 0.0]])[:, :C]
    moments = moments_of(mean, np.full(mean.shape, variance))
    for head in both_heads:
        p = head.predicted(moments).p
        assert np.isfinite(p).all()
        assert (p >= 0).all()
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
        if head.fitted:
            assert (p > 0).all()


@pytest.mark.parametrize("K", [2, 3])
def test_heads_fitted_to_extreme_moments_are_finite(K):
    rng = np.random.default_rng(0)
    shape = (200, latents_of(K))
    mean = 10.0 ** rng.uniform(-3, 5, shape) * rng.choice([-1, 1], shape)
    moments = moments_of(mean, 10.0 ** rng.uniform(-12, 6, mean.shape))
    rows = LeftOutLabels(np.array([32]), moments, rng.integers(0, K, 200), np.ones(200))
    head = fitted(rows, K)
    assert np.isfinite(head.theta()).all()
    assert np.isfinite(head.predicted(moments).p).all()
    assert np.isfinite(rows.nll(head))


def test_the_choice_of_k_goes_by_the_labels():
    """With 16 neighbours the latent function is known, with 4 or 64 it is not."""
    rng = np.random.default_rng(0)
    f = 2 * rng.standard_normal(2000)
    ks = np.array([4, 16, 64])
    noise = rng.standard_normal((2000, 3)) * np.array([3.0, 0.1, 3.0])
    moments = moments_of((f[:, None] + noise)[..., None], np.full((2000, 3, 1), 0.5))
    labels = (rng.random(2000) < expit(f)).astype(int)
    rows = LeftOutLabels(ks, moments, labels, np.ones(2000))
    for calibrated in (True, False):
        calibrator = ClassCalibrator(ClassHead(np.array([0.5, 0.5]), offsets=np.zeros(1)), calibrated)
        assert choose_k(trials(rows, ks, calibrator), calibrator).k == 16


@pytest.mark.parametrize("K", [2, 3])
def test_slopes_of_the_posterior_equal_finite_differences(K):
    rows = label_rows(K, 60)
    rng = np.random.default_rng(0)
    for _ in range(3):
        theta = np.r_[0.3 * rng.standard_normal(5 + latents_of(K)), -3.0]
        theta[3:5] = abs(theta[3:5])
        for curve in (theta[4], 0.0, 1e-3, 3.0):  # the last: some means are beyond the end of the curve
            theta[4] = curve
            ends = [
                [negative_log_posterior(theta + sign * off, rows, shares_of(rows, K))[0] for sign in (1, -1)]
                for off in 1e-6 * np.eye(len(theta))
            ]
            exact = np.subtract(*np.transpose(ends)) / 2e-6
            np.testing.assert_allclose(negative_log_posterior(theta, rows, shares_of(rows, K))[1], exact, atol=1e-6)


def by_hand(head, moments):
    """Probabilities (b, K) from the formulas of the head, but for surprises."""
    x = np.sqrt(head.curve) * np.abs(moments.mean)
    m = moments.mean * np.where(x > 0, np.sinh(x) / np.where(x > 0, x, 1), 1)
    a, g, t = np.exp([head.log_slope, head.log_spread, head.log_power])
    z = (a * m + head.offsets) / np.sqrt(1 + np.pi / 8 * a**2 * g * moments.variance)
    together = np.concatenate([-z, z], axis=1) if z.shape[1] == 1 else z
    coupling = 0.0 if z.shape[1] == 1 else head.coupling
    return softmax(t * (log_expit(together) - coupling * log_expit(-together)), axis=1)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("curve", [0.0, 1e-6, 1e-3, 0.1, 1.0])
def test_probabilities_are_those_of_the_formulas(K, curve):
    """Without a curve they are those of straight means."""
    moments = label_rows(K, 200).moments
    head = ClassHead(
        np.full(K, 1 / K), True, 0.3, -0.2, 0.1, 0.4, curve, offsets=np.linspace(-0.3, 0.5, latents_of(K))
    )  # fmt: skip
    assert np.sqrt(curve) * np.abs(moments.mean).max() < 8
    np.testing.assert_allclose(head.predicted(moments).p, by_hand(head, moments), rtol=1e-9, atol=1e-14)


def test_curved_means_grow_with_the_means_for_ever():
    mean = np.r_[-np.geomspace(1e6, 1e-6, 200), 0, np.geomspace(1e-6, 1e6, 200)][:, None]
    for curve in (0.0, 1e-3, 2.0):
        head = ClassHead(np.array([0.5, 0.5]), True, log_slope=-3.0, log_spread=5.0, curve=curve, offsets=np.zeros(1))
        p = head.predicted(moments_of(mean, np.full(mean.shape, 1e12))).p
        assert (np.diff(p[:, 1]) >= 0).all()
        np.testing.assert_allclose(p, p[::-1, ::-1], atol=1e-12)


def test_a_curve_is_recovered():
    """Where the log odds are known to grow faster than the means."""
    rng = np.random.default_rng(0)
    mean = rng.uniform(-3, 3, (4000, 1))
    p = expit(np.sinh(1.2 * mean) / 1.2)
    labels = (rng.random(4000) < p[:, 0]).astype(int)
    rows = LeftOutLabels(np.array([32]), moments_of(mean, np.full(mean.shape, 1e-9)), labels, np.ones(4000))
    head = fitted(rows, 2)
    assert head.curve > 0.2
    assert np.abs(head.predicted(rows.moments).p[:, 1:] - p).mean() < 0.02


@pytest.mark.parametrize("K", [2, 3])
def test_a_head_of_classes_comes_back_from_its_scalars(K):
    rows = label_rows(K, 300, sharpness=0.3)
    for head in (plain_head(rows, K), fitted(rows, K)):
        stored, arrays = head.packed()
        again = ClassHead.unpacked(json.loads(json.dumps(stored)), arrays, K, latents_of(K))
        np.testing.assert_array_equal(again.predicted(rows.moments).p, head.predicted(rows.moments).p)
        for wrong in ({"surprise": 1.0}, {"log_slope": 50.0}, {"coupling": None}):
            with pytest.raises(ModelFileError):
                ClassHead.unpacked({**stored, **wrong}, arrays, K, latents_of(K))
        with pytest.raises(ModelFileError):
            ClassHead.unpacked(stored, {**arrays, "offsets": np.zeros(K + 1)}, K, latents_of(K))


# --- counts ---------------------------------------------------------------------------------------------------------


FAMILY = {"binomial": Binomial(), "negative_binomial": NegativeBinomial()}
COUNTS = pytest.mark.parametrize("name", FAMILY)


def count_rows(name, n=1000, seed=0, shift=0.0, spread=1.0, dispersion=3.0):
    """Left-out counts whose latent function has the moments shifted and its variance multiplied by `spread`."""
    rng = np.random.default_rng(seed)
    mean, variance = 1 + rng.standard_normal(n), np.full(n, 0.3)
    f = mean + shift + np.sqrt(spread * variance) * rng.standard_normal(n)
    if name == "binomial":
        trials = rng.integers(1, 30, n)
        observed = {"count": rng.binomial(trials, expit(f)).astype(float), "trials": trials.astype(float)}
    else:
        exposure = rng.uniform(-0.5, 0.5, n)
        count = rng.negative_binomial(dispersion, dispersion / (dispersion + np.exp(f + exposure)))
        observed = {"count": count.astype(float), "log_exposure": exposure}
    return LeftOutCounts(np.array([32]), moments_of(mean[:, None], variance[:, None]), observed, np.ones(n))


def count_calibrator(name, dispersion=3.0, calibrated=True):
    family = FAMILY[name]
    return CountCalibrator(family, {}, CountHead(dispersion if family.dispersed else None), calibrated)


def distribution(name, head, moments, given):
    """given: the trials, or the log exposure."""
    key = "trials" if name == "binomial" else "log_exposure"
    return FAMILY[name].distribution(head.predicted(moments), head, {key: given}, {})


@COUNTS
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_a_fitted_head_of_counts_is_never_worse_than_the_plain_one(name, n, seed, spread):
    rows, method = count_rows(name, n, seed, spread=spread), count_calibrator(name)
    assert method.nll(rows, method.fit(rows)) <= method.nll(rows, method.plain)


@COUNTS
def test_the_plain_head_of_counts_gives_the_probabilities_of_the_model(name):
    rows, method = count_rows(name, 200), count_calibrator(name, calibrated=False)
    head = method.fit(rows)
    parameters = {} if name == "binomial" else {"log_dispersion": np.array(np.log(3.0))}
    moments = rows.moments
    expected = FAMILY[name].score(rows.observed, moments.mean, moments.variance, parameters).value
    given = rows.observed["trials" if name == "binomial" else "log_exposure"]
    found = distribution(name, head, moments, given).logpmf(rows.observed["count"])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert method.nll(rows, head) == pytest.approx(-expected.mean(), abs=1e-6)
    assert method.scores(rows, head)["nll"] == pytest.approx(-expected.mean(), abs=1e-6)


@COUNTS
@pytest.mark.parametrize(("shift", "spread"), [(0.5, 1.0), (0.0, 4.0), (-0.5, 0.2)])
def test_a_known_shift_and_spread_are_recovered(name, shift, spread):
    rows = count_rows(name, 4000, 0, shift, spread, dispersion=20.0)
    method = count_calibrator(name, 20.0)
    head = method.fit(rows)
    assert head.shift == pytest.approx(shift, abs=0.1)
    assert np.log(spread) == pytest.approx(head.log_spread, abs=0.7)
    fresh = count_rows(name, 2000, 1, shift, spread, dispersion=20.0)
    right = CountHead(None if name == "binomial" else 20.0, shift, float(np.log(spread)))
    assert method.nll(fresh, head) < method.nll(fresh, right) + 0.01


def test_a_wrong_dispersion_is_corrected():
    rows, fresh = (count_rows("negative_binomial", 4000, seed, dispersion=2.0) for seed in (0, 1))
    method = count_calibrator("negative_binomial", 20.0)
    head = method.fit(rows)
    assert method.nll(fresh, head) < method.nll(fresh, CountHead(2.0)) + 0.01
    assert method.nll(fresh, head) < method.nll(fresh, CountHead(20.0)) - 0.01


@COUNTS
def test_weights_of_counts_are_repetitions(name):
    rows = count_rows(name, 60)
    weights = np.random.default_rng(1).integers(1, 4, 60)
    again = np.repeat(np.arange(60), weights)
    weighted = LeftOutCounts(rows.ks, rows.moments, rows.observed, weights.astype(float))
    observed = {key: values[again] for key, values in rows.observed.items()}
    repeated = LeftOutCounts(rows.ks, rows.moments.rows(again), observed, np.ones(len(again)))
    method = count_calibrator(name)
    one, two = method.fit(weighted), method.fit(repeated)
    assert (one.shift, one.log_spread) == pytest.approx((two.shift, two.log_spread), abs=1e-3)
    assert method.nll(weighted, one) == pytest.approx(method.nll(repeated, one), abs=1e-12)


@COUNTS
def test_a_head_of_counts_comes_back_from_its_scalars(name):
    head = count_calibrator(name).fit(count_rows(name, 200))
    stored, _ = head.packed()
    dispersed = name != "binomial"
    assert CountHead.unpacked(json.loads(json.dumps(stored)), dispersed) == head
    for wrong in ({"shift": 1e9}, {"dispersion": None if dispersed else 3.0}, {"log_spread": "wide"}):
        with pytest.raises(ModelFileError):
            CountHead.unpacked({**stored, **wrong}, dispersed)


def test_without_latent_variance_the_head_is_the_textbook_distribution():
    mean, given = np.linspace(-2, 3, 50), np.linspace(0, 1, 50)
    moments, y = moments_of(mean[:, None], np.zeros((50, 1))), np.arange(50) % 9
    rate = np.exp(mean + given)
    theirs = scipy.stats.nbinom.logpmf(y, 3.0, 3.0 / (3.0 + rate))
    ours = distribution("negative_binomial", CountHead(3.0), moments, given)
    np.testing.assert_allclose(ours.logpmf(y), theirs, atol=1e-6)
    theirs = scipy.stats.binom.logpmf(y, 9, expit(mean))
    ours = distribution("binomial", CountHead(None), moments, np.full(50, 9.0))
    np.testing.assert_allclose(ours.logpmf(y), theirs, atol=1e-6)


@COUNTS
@pytest.mark.parametrize("variance", EXTREMES)
@pytest.mark.parametrize("size", [0.0, 1.0, 40.0, 300.0])
def test_counts_of_extreme_moments_have_finite_scores(name, variance, size):
    mean = np.array([[size], [-size], [0.0]])
    head = CountHead(None if name == "binomial" else 3.0)
    given = np.full(3, 9.0 if name == "binomial" else 0.0)
    dist = distribution(name, head, moments_of(mean, np.full((3, 1), variance)), given)
    for y in (0.0, 3.0, 9.0):
        assert np.isfinite(dist.logpmf(np.full(3, y))).all()
        assert (dist.logpmf(np.full(3, y)) <= 0).all()
    assert np.isfinite(dist.mean()).all()
    assert np.isfinite(dist.std()).all()


@COUNTS
def test_heads_fitted_to_extreme_counts_are_finite(name):
    rng = np.random.default_rng(0)
    mean, variance = rng.uniform(-12, 14, (100, 1)), 10.0 ** rng.uniform(-9, 2, (100, 1))
    y = np.floor(10.0 ** rng.uniform(0, 6, 100)) - 1
    observed = {"count": y}
    observed |= {"trials": y + rng.integers(1, 100, 100)} if name == "binomial" else {"log_exposure": np.zeros(100)}
    rows = LeftOutCounts(np.array([32]), moments_of(mean, variance), observed, np.ones(100))
    method = count_calibrator(name)
    head = method.fit(rows)
    assert np.isfinite([head.shift, head.log_spread, head.dispersion or 1.0]).all()
    assert np.isfinite(method.nll(rows, head))
