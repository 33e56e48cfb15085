"""Families from outside beside those of the package: none takes another's place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.stats
from estimator_data import quick, small, through_file

from nearfield.families import FAMILIES, Family, register
from nearfield.families.gaussian import Gaussian
from nearfield.families.outputs import GaussianOutputs

pytestmark = pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")


@contextmanager
def registered(*families: type[Family]) -> Iterator[None]:
    """Known inside of the block alone."""
    for family in families:
        register(family)
    try:
        yield
    finally:
        for family in families:
            del FAMILIES[family.name]


class OtherOutputs(GaussianOutputs):
    """Several outputs under a name of their own."""

    name = "other_outputs"

    @property
    def likelihood(self) -> str:
        return "other"


class Other(Gaussian):
    """Gaussian noise under a name of its own, also of several outputs."""

    name = "other"

    @classmethod
    def of_outputs(cls, outputs: int, alike: bool) -> Family:
        return OtherOutputs(outputs, alike, complete=True)


class Alone(Gaussian):
    """Of one output only, without a site state, and with sites that are not what was observed."""

    name = "alone"
    exact_sites = False

    @classmethod
    def of_outputs(cls, outputs: int, alike: bool) -> Family:
        return super(Gaussian, cls).of_outputs(outputs, alike)  # as a family has it that says nothing


def test_a_second_family_of_several_outputs_leaves_the_first_one_alone(tmp_path):
    X, y = small(60)
    Y = np.stack([y, -2 * y], axis=1)
    before = quick(outputs="shared").fit(X, Y)
    with registered(OtherOutputs, Other):
        gaussian, other = quick(outputs="shared").fit(X, Y), quick(outputs="shared", likelihood="other").fit(X, Y)
        np.testing.assert_array_equal(gaussian.predict(X), before.predict(X))
        np.testing.assert_array_equal(other.predict(X), before.predict(X))
        assert gaussian.summary_.likelihood == "gaussian_outputs"
        assert other.summary_.likelihood == "other_outputs"
        again = through_file(other, tmp_path)
        assert again.likelihood == "other"
        np.testing.assert_array_equal(again.predict(X), before.predict(X))


def test_a_family_of_one_output_says_so():
    X, y = small(40)
    with registered(Alone), pytest.raises(ValueError, match="likelihood is 'alone' and y has 2 outputs: it takes one"):
        quick(likelihood="alone").fit(X, np.stack([y, y], axis=1))


@pytest.mark.parametrize("objective", ["mll", "vecchia"])
def test_only_exact_sites_have_a_joint_density(objective):
    """Without a site state, too: it is the family that knows."""
    X, y = small(40)
    with registered(Alone, OtherOutputs, Other):
        with pytest.raises(ValueError, match="it takes one output with Gaussian noise"):
            quick(objective=objective, likelihood="alone").fit(X, y)
        with pytest.raises(ValueError, match="it takes one output with Gaussian noise"):
            quick(objective=objective, likelihood="other").fit(X, np.stack([y, y], axis=1))
        assert np.isfinite(quick(objective=objective, likelihood="other").fit(X, y).predict(X)).all()


def test_exact_sites_are_those_whose_score_is_the_normal_density_of_the_sites():
    """log p of an observation equals the density of its site around the latent function."""
    rng = np.random.default_rng(0)
    scale2, mean, variance = np.array([1.7]), rng.standard_normal((9, 1)), rng.uniform(0.1, 2, (9, 1))
    for made in (family for family in FAMILIES.values() if family.exact_sites):
        family = made()
        parameters = {name: np.full(p.shape, p.initial) for name, p in family.parameters.items()}
        observed = family.observe(rng.standard_normal(9), np.ones(9), noise_variance=rng.uniform(0, 0.1, 9))
        sites = family.sites(observed, family.initial_state(observed), parameters, scale2)
        wide = variance + sites.noises * scale2
        expected = scipy.stats.norm(mean, np.sqrt(wide)).logpdf(sites.targets)[:, 0]
        found = family.score(observed, mean, variance, parameters).value
        np.testing.assert_allclose(found, expected, atol=1e-6)  # but for the floor of the noise


def test_a_name_is_taken_once():
    class Gaussian(Family):
        name = "gaussian"

    with pytest.raises(ValueError, match=r"'gaussian' is taken by nearfield.families.gaussian.Gaussian"):
        register(Gaussian)
    assert FAMILIES["gaussian"].__module__ == "nearfield.families.gaussian"
    assert register(FAMILIES["gaussian"]) is FAMILIES["gaussian"]  # the same once more
    with registered(Other):
        anew = type(Other)("Other", (Gaussian,), {"name": "other", "__module__": __name__, "__qualname__": "Other"})
        assert register(anew) is FAMILIES["other"] is anew
