"""One entry for each family: data to try it on, and its likelihood written down on its own.

The tests of families run over all variants. A family that is registered and has no entry in `EXAMPLES` fails them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.integrate
import scipy.special
import scipy.stats

from nearfield.covariances import Mixed, PerLatent, Shared
from nearfield.families import FAMILIES
from nearfield.families.classes import SITES as CLASS_SITES
from nearfield.families.classes import Bernoulli, OneAgainstAll
from nearfield.families.counts import SITES as COUNT_SITES
from nearfield.families.counts import Binomial, NegativeBinomial
from nearfield.families.gaussian import Gaussian
from nearfield.families.outputs import GaussianOutputs
from nearfield.families.student_t import StudentT
from nearfield.kernels import KERNELS
from nearfield.means import MEANS
from nearfield.model import Model
from nearfield.rows import Rows
from nearfield.warps import Warps


class Example(NamedTuple):
    """variants(f, weight, rng): families with what was observed, by a word, at rows with latent values f (n,) and
    weights (n,). score(observed, mean, variance, parameters): log p of one observation, by brute force; all arrays
    without the dimension of rows."""

    variants: Callable[[np.ndarray, np.ndarray, np.random.Generator], dict[str, tuple[Any, dict[str, np.ndarray]]]]
    score: Callable[[dict[str, Any], np.ndarray, np.ndarray, dict[str, Any]], float]


def integrated(log_likelihood, m, v):
    """log of the integral of exp(log_likelihood(f)) N(f; m, v), on a fine grid around its peak."""
    wide = np.linspace(m - 40 * math.sqrt(v), m + 40 * math.sqrt(v), 40_001)
    values = log_likelihood(wide) + scipy.stats.norm(m, math.sqrt(v)).logpdf(wide)
    near = wide[values > values.max() - 60]
    step = wide[1] - wide[0]
    grid = np.linspace(near[0] - step, near[-1] + step, 100_001)
    values = log_likelihood(grid) + scipy.stats.norm(m, math.sqrt(v)).logpdf(grid)
    top = values.max()
    return top + math.log(scipy.integrate.trapezoid(np.exp(values - top), grid))


# --- numbers --------------------------------------------------------------------------------------------------------


def _noisy(made, noise):
    def variants(f, weight, rng):
        n = len(f)
        y = f + 0.3 * noise(rng, n)
        return {"": (made(), made().observe(y, weight, noise_variance=np.where(rng.random(n) < 0.5, 0.0, 0.05)))}

    return variants


def _gaussian_score(o, mean, variance, p):
    return scipy.stats.norm(mean[0], np.sqrt(variance[0] + np.exp(p["log_noise"]) + o["known_noise"])).logpdf(o["y"])


def _student_t_score(o, mean, variance, p):
    df, scale = np.exp(p["log_df"]), np.exp(p["log_noise"] / 2)
    wide = variance[0] + o["known_noise"]  # what is known of the noise is Gaussian
    return integrated(lambda f: scipy.stats.t(df, f, scale).logpdf(o["y"]), mean[0], wide)


def _outputs(f, weight, rng):
    n = len(f)
    Y = np.stack([f, f**2, f - 1], axis=1) + 0.3 * rng.standard_normal((n, 3))
    gaps = Y.copy()
    gaps[rng.random(Y.shape) < 0.2] = np.nan
    gaps[np.isnan(gaps).all(axis=1), 0] = 0.5
    known = np.where(rng.random(Y.shape) < 0.5, 0.0, 0.05)
    found = {}
    for word, y, noise, one_scale in (
        ("own", Y, 0 * known, False),
        ("own-gaps", gaps, known, False),
        ("one_scale", Y, 0 * known, True),
        ("one_scale-gaps", gaps, known, True),
    ):
        family = GaussianOutputs(3, one_scale, complete=True)
        observed = family.observe(y, weight, noise_variance=noise)
        found[word] = (family.with_rows(observed), observed)
    return found


def _outputs_score(o, mean, variance, p):
    total = variance + np.exp(p["log_noise"]) + o["known_noise"]
    each = scipy.stats.norm(mean, np.sqrt(total)).logpdf(o["y"])
    return each[o["present"]].sum() / len(each)


# --- classes --------------------------------------------------------------------------------------------------------


def _seen(family, labels, weight, rng):
    """Counts with the labels, and where a row counts more than once, sometimes a second label."""
    observed = family.observe(labels, weight)
    other = rng.integers(0, family.classes, len(labels))
    twice = weight > 1
    observed["counts"][np.flatnonzero(twice), other[twice]] += 1.0
    return observed


def _bernoulli(f, weight, rng):
    labels = (rng.random(len(f)) < scipy.special.expit(f)).astype(int)
    families = {how: Bernoulli(2, how) for how in CLASS_SITES}
    return {how: (family, _seen(family, labels, weight, rng)) for how, family in families.items()}


def _one_against_all(f, weight, rng):
    labels = np.digitize(f + rng.logistic(size=len(f)), [-1, 1])
    families = {how: OneAgainstAll(3, how) for how in CLASS_SITES}
    return {how: (family, _seen(family, labels, weight, rng)) for how, family in families.items()}


def _bernoulli_score(o, mean, variance, p):
    signs = (-1.0, 1.0)
    each = [integrated(lambda f, s=s: scipy.special.log_expit(s * f), mean[0], variance[0]) for s in signs]
    return float(np.dot(o["counts"], each))


def _one_against_all_score(o, mean, variance, p):
    each = [integrated(scipy.special.log_expit, m, v) for m, v in zip(mean, variance, strict=True)]
    return float(np.dot(o["counts"], each - scipy.special.logsumexp(each)))


# --- counts ---------------------------------------------------------------------------------------------------------


def _binomial(f, weight, rng):
    trials = rng.integers(1, 9, len(f)).astype(float)
    count = rng.binomial(trials.astype(int), scipy.special.expit(f)).astype(float)
    return {how: (Binomial(how), {"count": count, "trials": trials, "weight": weight}) for how in COUNT_SITES}


def _negative_binomial(f, weight, rng):
    log_exposure = 0.3 * rng.standard_normal(len(f))
    mean = np.exp(f + log_exposure)
    count = rng.negative_binomial(3, 3 / (3 + mean)).astype(float)
    observed = {"count": count, "log_exposure": log_exposure, "weight": weight}
    return {how: (NegativeBinomial(how), dict(observed)) for how in COUNT_SITES}


def _binomial_score(o, mean, variance, p):
    def log_likelihood(f):
        return scipy.stats.binom(o["trials"], scipy.special.expit(f)).logpmf(o["count"])

    return integrated(log_likelihood, mean[0], variance[0])


def _negative_binomial_score(o, mean, variance, p):
    r = np.exp(p["log_dispersion"])

    def log_likelihood(f):
        return scipy.stats.nbinom(r, r / (r + np.exp(f + o["log_exposure"]))).logpmf(o["count"])

    return integrated(log_likelihood, mean[0], variance[0])


EXAMPLES: dict[str, Example] = {
    "gaussian": Example(_noisy(Gaussian, lambda rng, n: rng.standard_normal(n)), _gaussian_score),
    "gaussian_outputs": Example(_outputs, _outputs_score),
    "student_t": Example(_noisy(StudentT, lambda rng, n: rng.standard_t(3, n)), _student_t_score),
    "bernoulli": Example(_bernoulli, _bernoulli_score),
    "one_against_all": Example(_one_against_all, _one_against_all_score),
    "binomial": Example(_binomial, _binomial_score),
    "negative_binomial": Example(_negative_binomial, _negative_binomial_score),
}


# --- cases ----------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A family with inputs (n, 2) and what was observed there."""

    family: Any
    X: np.ndarray
    observed: dict[str, np.ndarray]


def case(which: str, n: int = 40, weighted: bool = False, seed: int = 0) -> Case:
    """The variant called `which`, the name of a family and a word; `weighted`: some rows count two or three times."""
    name, _, word = which.partition(":")
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    weight = np.where(rng.random(n) < 0.3, rng.integers(2, 4, n), 1).astype(float) if weighted else np.ones(n)
    f = 1.5 * np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    family, observed = EXAMPLES[name].variants(f, weight, rng)[word]
    return Case(family, X, observed)


def _every() -> list[str]:
    f, rng = np.linspace(-1, 1, 5), np.random.default_rng(0)
    return [
        f"{name}:{word}" for name in FAMILIES if name in EXAMPLES for word in EXAMPLES[name].variants(f, f * 0 + 1, rng)
    ]  # fmt: skip


CASES = _every()
"""All variants of all families that the package has, as `case` takes them."""


def covariances(case: Case, kernel: str = "matern52") -> dict[str, Any]:
    """The covariances that latent functions of the case may have, by a word."""
    family, warps, own = case.family, Warps.none(case.X.shape[1]), KERNELS[kernel]
    found: dict[str, Any] = {"shared": Shared(own, family.latents, warps, family.kernel_scales)}
    if family.latents > 1 and family.kernel_scales == family.latents:
        found["own"] = PerLatent(own, family.latents, warps, family.kernel_scales)
        if family.kind == "numbers":
            found["mixed"] = Mixed(own, family.latents, warps, family.initial_mixing(case.observed, family.latents + 1))
    return found


def model_of(case: Case, covariance: str = "shared", kernel: str = "matern52", mean: str = "constant", seed: int = 1):
    """A model with parameters near the initial ones, and the rows, their site state off its start where it can be."""
    family, rng = case.family, np.random.default_rng(seed)
    model = Model.initial(
        family, covariances(case, kernel)[covariance], MEANS[mean], family.initial_mean(case.observed)
    )
    moved = {name: value + 0.1 * rng.standard_normal(value.shape) for name, value in model.parameters.items()}
    rows = Rows.of(family, case.X, case.observed)
    state = rows.state + 0.01 * np.abs(rng.standard_normal(rows.state.shape))
    return model.with_parameters(moved), rows.with_state(state)


def copies(observed: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """All observations one by one: the row (m,) of each, and what was observed, as rows (m,) that count once."""
    if "counts" in observed:
        row, label = np.nonzero(observed["counts"])
        times = observed["counts"][row, label].astype(int)
        return np.repeat(row, times), {"counts": np.eye(observed["counts"].shape[1])[np.repeat(label, times)]}
    row = np.repeat(np.arange(len(observed["weight"])), observed["weight"].astype(int))
    return row, {name: np.ones(len(row)) if name == "weight" else values[row] for name, values in observed.items()}
