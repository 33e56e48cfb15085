"""Families from outside beside those of the package: none takes another's place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.stats
from cli_runs import runner, short_training
from estimator_data import labelled, quick, quick_classifier, quick_counts, small, through_file

from nearfield import GPClassifier, GPRegressor
from nearfield.families import FAMILIES, Family, Parameters, register
from nearfield.families.classes import Bernoulli
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
    def of_outputs(cls, outputs: int, one_scale: bool) -> Family:
        return OtherOutputs(outputs, one_scale, complete=True)


class Alone(Gaussian):
    """Of one output only, without a site state, and with sites that are not what was observed."""

    name = "alone"
    exact_sites = False

    @classmethod
    def of_outputs(cls, outputs: int, one_scale: bool) -> Family:
        return super(Gaussian, cls).of_outputs(outputs, one_scale)  # as a family has it that says nothing


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


# --- what a family learns -------------------------------------------------------------------------------------------


class Telling(Gaussian):
    """Tells something that no estimator knows of."""

    name = "telling"

    def learned_values(self, parameters: Parameters, scale2: np.ndarray, head, unit: np.ndarray):
        return {"precision": float(np.exp(-parameters["log_noise"]) / unit**2)}


def test_the_estimator_has_what_a_family_learns_and_forgets_it(tmp_path):
    X, y = small(60)
    with registered(Telling):
        model = quick(likelihood="telling").fit(X, 3 * y)
        assert model.precision_ == pytest.approx(model.noise_std_**-2, rel=1e-4)  # but for the floor of the noise
        assert through_file(model, tmp_path).precision_ == model.precision_
        assert model.df_ == np.inf
        model.set_params(likelihood="student_t").fit(X, y)
        assert not hasattr(model, "precision_")
        assert model.df_ < 1e7
        assert model.noise_scale_ == model.noise_std_
        model.set_params(likelihood="gaussian").fit(X, y)
        assert model.df_ == np.inf


def test_info_tells_what_a_family_learned(tmp_path, capsys):
    X, y = small(60)
    path = tmp_path / "model.nearfield"
    with registered(Telling):
        model = quick(likelihood="telling").fit(X, y)
        model.save(path)
        run = runner(capsys)
        assert json.loads(run("info", path, "--json").out)["precision"] == model.precision_
        assert f"{model.precision_:.6g}" in run("info", path).out


# --- the family of the fit, not of the arguments --------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_fit_stays_what_it_is_when_arguments_change(outputs, tmp_path):
    X, y = small(60)
    Y = y if outputs == 1 else np.stack([y, -y], axis=1)
    model = quick().fit(X, Y)
    before = model.predict(X)
    model.set_params(likelihood="student_t")
    np.testing.assert_array_equal(model.predict(X), before)
    again = through_file(model, tmp_path)
    assert again.likelihood == "gaussian"
    np.testing.assert_array_equal(again.predict(X), before)
    np.testing.assert_array_equal(model.update(X[:5], Y[:5]).predict(X), again.update(X[:5], Y[:5]).predict(X))


def test_counts_stay_what_they_are_when_arguments_change(tmp_path):
    X, y = small(60)
    count, trials = np.minimum(np.round(np.exp(y)), 9), np.full(60, 9)
    model = quick_counts().fit(X, count, exposure=trials)
    before = model.predict(X, exposure=trials)
    model.set_params(likelihood="binomial", auxiliary="conjugate")
    np.testing.assert_array_equal(model.predict(X, exposure=trials), before)
    with pytest.raises(ValueError, match="the likelihood is 'negative_binomial': it takes exposure"):
        model.predict(X, trials=trials)
    again = through_file(model, tmp_path)
    assert again.likelihood == "negative_binomial"
    np.testing.assert_array_equal(again.predict(X, exposure=trials), before)
    for one in (model, again):
        one.update(X[:5], count[:5], exposure=trials[:5])
    np.testing.assert_array_equal(again.predict(X, exposure=1), model.predict(X, exposure=1))


# --- labels ---------------------------------------------------------------------------------------------------------


class Shy(Bernoulli):
    """Two classes, with scores that count half."""

    name = "shy"

    def score(self, observed, mean, variance, parameters):
        score = super().score(observed, mean, variance, parameters)
        return score._replace(value=score.value / 2, by_mean=score.by_mean / 2, by_variance=score.by_variance / 2)


def test_a_family_of_labels_is_chosen_by_name(tmp_path):
    X, y = labelled(80)
    before = quick_classifier().fit(X, y)
    with registered(Shy):
        assert quick_classifier().fit(X, y).summary_.likelihood == "bernoulli"  # the first that suits
        model = quick_classifier(likelihood="shy").fit(X, y)
        assert model.summary_.likelihood == "shy"
        again = through_file(model, tmp_path)
        assert again.likelihood == "shy"
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        again.update(X[:4], y[:4])
        assert again.n_rows_ == 84
        with pytest.raises(ValueError, match="likelihood is 'bernoulli', which is not for 3 classes"):
            quick_classifier(likelihood="bernoulli").fit(*labelled(80, 3))
    with pytest.raises(ValueError, match="likelihood is 'shy': expected one of 'auto', 'bernoulli', 'one_against_all'"):
        quick_classifier(likelihood="shy").fit(X, y)
    both = quick_classifier(likelihood="one_against_all").fit(X, y)
    assert both._fit.predictor.model.family.latents == 2
    assert np.mean(both.predict(X) == before.predict(X)) > 0.9
    before.set_params(likelihood="one_against_all")
    after = through_file(before, tmp_path)
    np.testing.assert_array_equal(after.predict_proba(X), before.predict_proba(X))
    assert through_file(quick_classifier().fit(X, y), tmp_path).likelihood == "auto"
    with pytest.raises(ValueError, match="predictive is 'auto'"):
        quick_classifier(predictive="auto").fit(X, y)


def test_the_command_line_takes_a_family_of_labels_by_name(tmp_path, capsys):
    X, y = labelled(80)
    table, path = tmp_path / "rows.csv", tmp_path / "model.nearfield"
    rows = [f"{a!r},{b!r},{'yes' if label else 'no'}" for (a, b), label in zip(X.tolist(), y, strict=True)]
    table.write_text("\n".join(["a,b,y", *rows]) + "\n")
    run = runner(capsys)
    with registered(Shy), short_training():
        done = run("fit", table, "--target", "y", "--likelihood", "shy", "--out", path)
        assert done.code == 0, done
        assert GPClassifier.load(path).summary_.likelihood == "shy"
        assert json.loads(run("evaluate", path, table, "--json").out)["rows"] == 80
        wrong = run("fit", table, "--target", "y", "--task", "regression", "--likelihood", "shy", "--out", path)
        assert wrong.code == 2
        assert "--likelihood shy goes with --task classification" in wrong.err


def test_a_model_is_not_read_as_another(tmp_path):
    X, y = small(40)
    quick().fit(X, y).save(tmp_path / "model.nearfield")
    with pytest.raises(ValueError, match="it holds a 'GPRegressor', not a GPClassifier"):
        GPClassifier.load(tmp_path / "model.nearfield")
    assert GPRegressor.load(tmp_path / "model.nearfield").likelihood == "gaussian"
