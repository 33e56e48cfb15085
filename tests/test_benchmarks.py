"""The clocks and comparisons of benchmarks/; what they time is not asserted anywhere."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import nearfield

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def test_the_yardstick_of_a_step_is_the_density_of_left_out_rows():
    torch = pytest.importorskip("torch")
    from _baselines import natural_step

    rng = np.random.default_rng(0)
    query, near, targets, y = rng.normal(size=(3, 2)), rng.normal(size=(3, 5, 2)), rng.normal(size=(3, 5)), np.zeros(3)
    lengths, variance, noise = np.array([0.7, 1.3]), 1.7, 0.2
    logs = [torch.tensor(np.log(v), requires_grad=True) for v in (lengths, variance, noise)]
    loss = natural_step(*(torch.as_tensor(a) for a in (query, near, targets, y)), *logs)
    expected = []
    for i in range(3):  # log p(y | targets) = log p(targets, y) - log p(targets)
        Z = np.r_[near[i], query[i : i + 1]] / lengths
        r = np.sqrt(5) * np.linalg.norm(Z[:, None] - Z, axis=-1)
        K = variance * (1 + r + r**2 / 3) * np.exp(-r) + noise * np.eye(6)
        both = multivariate_normal(np.zeros(6), K).logpdf(np.r_[targets[i], y[i]])
        expected.append(both - multivariate_normal(np.zeros(5), K[:5, :5]).logpdf(targets[i]))
    assert float(loss) == pytest.approx(-np.mean(expected), rel=1e-9)
    assert all(float(leaf.grad.abs().sum()) > 0 for leaf in logs)


def test_flight_lines_end_where_the_course_turns_or_rows_are_far_apart():
    from left_out_tasks import flight_lines

    there = np.column_stack([np.linspace(0, 1, 11), np.full(11, 52.0)])
    back, away = there[::-1] + np.array([-0.03, 0.02]), there + np.array([0.0, 3.0])
    found = flight_lines(np.concatenate([there, back, away]))
    assert (np.diff(found) >= 0).all()
    for part in (slice(0, 10), slice(11, 21), slice(22, 33)):  # the row where it turns is part of the next line
        assert len(np.unique(found[part])) == 1
    assert len({found[5], found[16], found[27]}) == 3


def test_turns_alternate_and_the_first_does_not_count():
    import against_old

    order = []

    def contestant(name):
        def run():
            order.append(name)
            return {"cpu": float(len(order))}

        return run

    found = against_old.in_turns({name: contestant(name) for name in "ab"}, repeats=2)
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert found == {"a": {"cpu": [3.0, 6.0]}, "b": {"cpu": [4.0, 5.0]}}


def test_ratios_are_of_bests_and_of_medians(capsys):
    import against_old

    new, old = ({"cpu": [c, 2 * c, 9 * c], "wall": [1.0, 1.0, 4.0]} for c in (1.0, 4.0))
    against_old.report("fit", {"new": new, "old": old}, "old")
    rows = capsys.readouterr().out.splitlines()
    assert rows[1] == "| fit | cpu | wall | CPU over old | wall over old |"
    assert rows[3] == "| new | 1 (2) | 1 (1) | 0.25 (0.25) | 1.00 (1.00) |"


def test_a_version_runs_its_own_source_and_failures_are_told(monkeypatch, tmp_path):
    import against_old

    package = tmp_path / "src" / "nearfield"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("GPRegressor = 'of old'")
    old = against_old.Version("old", tmp_path, sys.executable)
    seconds, printed = old.run("-c", f"{against_old.PACKAGE}; print(GPRegressor)")
    assert printed == "of old\n"
    assert set(seconds) == {"cpu", "wall"}
    with pytest.raises(SystemExit, match=r"(?s)old: -c 1/0 failed:.*ZeroDivisionError"):
        old.run("-c", "1/0")
    monkeypatch.delenv("NEARFIELD_OLD", raising=False)
    assert [version.name for version in against_old.versions()] == ["new"]
    monkeypatch.setenv("NEARFIELD_OLD", str(tmp_path))
    with pytest.raises(SystemExit, match=r"No .*/\.venv/bin/python: NEARFIELD_OLD must be a checkout"):
        against_old.versions()


@pytest.mark.parametrize("kind", ["GPRegressor", "GPClassifier"])
def test_the_worker_fits_all_rows_and_scores_the_test_rows(monkeypatch, tmp_path, kind):
    import against_old

    fitted = []

    class Model:
        def __init__(self, **settings):
            self.settings = settings

        def fit(self, X, y):
            fitted.append((len(X), len(y), self.settings))
            return self

        def log_score(self, X, y):
            return -len(X) / 10

    monkeypatch.setattr(nearfield, kind, Model)
    rows = {"X": np.zeros((1200, 2)), "y": np.zeros(1200, dtype=int if kind == "GPClassifier" else float)}
    np.savez(tmp_path / "rows.npz", **rows, X_test=np.zeros((7, 2)), y_test=np.zeros(7))
    found = against_old.worker(str(tmp_path / "rows.npz"))
    assert found["NLL"] == 0.7
    assert fitted[1] == (1200, 1200, {"random_state": 0})
    assert fitted[0][0] == 1000


def test_rows_of_the_fits(monkeypatch, tmp_path):
    import against_old

    example = against_old.three_outputs()
    assert (example["X"].shape, example["y_test"].shape) == ((1000, 2), (200, 3))
    assert 0.15 < np.isnan(example["y"]).mean() < 0.25
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "few", X=rng.normal(size=(40, 2)), y=np.r_[np.zeros(20, int), np.arange(1, 21)])
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    found = against_old.of_catalogue("few")
    assert len(found["X"]) == 30
    assert set(found["y_test"]) <= set(found["y"])


def test_a_step_of_svgp_and_a_line_of_the_table():
    pytest.importorskip("gpytorch", reason="the package gpytorch is not installed")
    import fit

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    step = fit.svgp_step(fit.Split(X, y, X, y, X, y), "float64")
    before = step.__self__.model.covar_module.outputscale.item()
    step()
    assert step.__self__.model.covar_module.outputscale.item() != before
    payload = {
        "status": "done", "metrics": {"rmse": 0.1, "nll": -1.0, "crps": 0.05}, "peak": 600.4,
        "seconds": {"fit": 11.26, "predict": 1.7},
    }  # fmt: skip
    assert fit.line("ours", payload) == "| ours | 11.3 | 1.7 | 600 | 0.1000 | -1.000 | 0.0500 |"
    assert fit.line("theirs", {"status": "failed", "message": "oh"}).startswith("| theirs | failed: oh |")


def test_error_bars_are_judged_by_their_mean_and_far_away_by_the_least():
    import error_bars

    found = np.array([[0.80, 0.5], [0.96, 0.7]])
    assert error_bars.row("a", "known", found) == "| a | 0.880 | 0.800 | 0.600 |  |"
    assert error_bars.row("a", "few", found + 0.1).endswith("| no |")
    assert error_bars.row("a", "far", np.array([[0.99, 0.0, 1.0], [3.0, 0.0, 1.0]])).endswith("| no |")
    for topic in error_bars.KEPT:
        _, _, make, settings = next(error_bars.cases(topic, ["rbf"], [30]))
        data = make(0)
        assert settings["kernel"] == "rbf"
        assert len(data.X) == len(data.noise)
        assert np.isfinite(data.y).all()
    quiet = error_bars.made(error_bars.waves, error_bars.flat, 20, 2, 0)
    np.testing.assert_array_equal(quiet.y_new, quiet.truth)


def test_one_hot_blocks_become_text_columns_again():
    pytest.importorskip("pandas")
    import _frames

    names = ['\ufeff"age"', "job=clerk", "job=cook", "default=yes"]
    table = _frames.undone(np.array([[30.0, 0, 1, 0], [41.5, 1, 0, 1], [50.0, 0, 0, 0]]), names)
    assert list(table.columns) == ["age", "job", "default"]
    assert table["age"].tolist() == [30.0, 41.5, 50.0]
    assert table["job"].tolist()[:2] == ["cook", "clerk"]
    assert table["job"].isna().tolist() == [False, False, True]
    assert table["default"].tolist() == ["no", "yes", "no"]
    assert _frames.coded(np.array([[0.5], [-1.0], [0.5]]), ("a",))["a"].tolist() == ["level 1", "level 0", "level 1"]


def test_indicators_are_those_of_the_training_rows():
    pd = pytest.importorskip("pandas")
    import tables

    when = pd.to_datetime(["2021-01-02", "2021-01-01", "2021-01-05"])
    train = pd.DataFrame({"a": ["x", "y", None], "n": [1.0, np.nan, 3.0], "when": when})
    test = pd.DataFrame({"a": ["z", "y"], "n": [np.nan, 7.0], "when": when[:2]})
    X, X_test = tables.indicators(train, test)
    assert X.tolist() == [[1, 1, 1, 0], [2, 0, 0, 1], [3, 4, 0, 0]]  # n, when, x, y
    assert X_test.tolist() == [[2, 1, 0, 0], [7, 0, 0, 1]]


def test_a_line_of_mixed_tables():
    pytest.importorskip("pandas")
    import tables

    figures = tables.averaged(
        [{"one-hot": (0.4, 1.0), "catboost": (0.5, 3.0)}, {"one-hot": (0.6, 2.0), "catboost": (0.5, 5.0)}]
    )
    assert tables.line("adult", "mean", figures) == "| adult | mean | 0.5000 | 1.5 | 0.5000 | 4.0 | - | - | 1.000 |"
    assert tables.nll(np.array([[0.25, 0.75], [0.5, 0.5]]), np.array([1, 0])) == pytest.approx(-np.log(0.375) / 2)


@pytest.mark.parametrize("name", ["orders", "trials"])
def test_made_tables_have_text_gaps_and_both_labels(name):
    pytest.importorskip("pandas")
    import _frames

    table, y = _frames.MADE[name]()
    assert table.isna().any().any()
    assert 0.3 < y.mean() < 0.7
    assert len(table) == len(y)


def test_a_jump_is_what_halving_steps_leaves():
    import continuity

    class Stepped:
        def predict(self, X, return_std):
            return 3 * X[:, 0] + 0.5 * (X[:, 0] > 0.3), 2 + 0.25 * (X[:, 1] > 0.7)

    start, stop = np.zeros((2, 2)), np.array([[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(continuity.jumps(Stepped(), start, stop), [[0.25, 0], [0, 0.125]], atol=1e-6)


def test_slopes_of_expected_improvement_and_minima_of_its_functions():
    import bayesian_optimisation as bo
    from scipy.optimize import approx_fprime
    from scipy.stats import norm

    for mean, std in ((0.3, 0.5), (-1.0, 0.2), (4.0, 0.9)):
        value, *slopes = bo.log_improvement(mean, std, 0.1)
        z = (0.1 - mean) / std
        assert np.exp(value) == pytest.approx((0.1 - mean) * norm.cdf(z) + std * norm.pdf(z), rel=1e-9)
        numeric = approx_fprime(np.array([mean, std]), lambda at: bo.log_improvement(*at, 0.1)[0], 1e-7)
        np.testing.assert_allclose(slopes, numeric, rtol=1e-4, atol=1e-6)
    assert bo.branin(np.array([[(np.pi + 5) / 15, 2.275 / 15]]))[0] == pytest.approx(bo.PROBLEMS["branin"].minimum)
    at = np.array([[0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]])
    assert bo.hartmann6(at)[0] == pytest.approx(bo.PROBLEMS["hartmann6"].minimum, abs=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_few_steps_of_bayesian_optimisation():
    import bayesian_optimisation as bo

    problem = bo.Problem(lambda U: ((U - 0.3) ** 2).sum(axis=1), 1, 0.0, 6, 9)
    for kind in (bo.Ours, bo.Theirs):
        regrets, _ = bo.optimised(kind, problem, 0)
        assert len(regrets) == 9
        assert regrets[-1] < 1e-3


def test_copies_are_made_as_said():
    import copies

    rng = np.random.default_rng(0)
    made = {name: (which(60, rng), near) for name, (which, near) in copies.KINDS.items()}
    assert [len(which) for which, _ in made.values()][:6] == [60, 120, 180, 600, 60, 80]
    times = np.bincount(made["a third twice"][0])
    assert sorted(set(times.tolist())) == [1, 2]
    assert (times == 2).sum() == 20
    assert {name for name, (_, near) in made.items() if near} == {name for name in made if name.startswith("near")}
