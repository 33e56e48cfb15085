"""Writes small models of every kind with the nearfield that is installed, and what they predict: `make.py FOLDER`.

Run it once for every version of the file format, with the last release that writes it; the tests load the files ever
after and compare. Public calls only, so that it runs with any version.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

from nearfield import GPClassifier, GPCountRegressor, GPRegressor

QUICK = {"max_steps": 40, "refresh_every": 10, "random_state": 0, "verbose": False}
N, NEW = 90, 12


def inputs(n=N + 2 * NEW, d=3, seed=0):
    """Rows (n, d) of which some are equal, and the last column is constant."""
    X = np.random.default_rng(seed).standard_normal((n, d))
    X[5] = X[4]
    X[:, -1] = 2.5
    return X


def smooth(X):
    return np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]


def number(X, seed=1):
    return smooth(X) + 0.2 * np.random.default_rng(seed).standard_normal(len(X))


def outliers(X):
    y = number(X)
    y[::9] += 8
    return y


def outputs(X, gaps=False):
    rng = np.random.default_rng(2)
    Y = np.stack([smooth(X), smooth(X) - np.cos(X[:, 1]), 2 * np.cos(X[:, 1])], axis=1)
    Y += 0.1 * rng.standard_normal(Y.shape)
    if gaps:
        Y[rng.random(Y.shape) < 0.2] = np.nan
    return Y


def labels(X, classes, names):
    score = smooth(X) + 0.5 * np.random.default_rng(3).logistic(size=len(X))
    place = np.digitize(score, np.linspace(-1, 1, classes + 1)[1:-1])
    place[:classes] = np.arange(classes)
    return np.array(names)[place]


def counts(X, exposure):
    return np.random.default_rng(4).poisson(exposure * np.exp(1 + smooth(X)))


def successes(X, trials):
    return np.random.default_rng(5).binomial(trials, 1 / (1 + np.exp(-smooth(X))))


def regressions():
    """(name, estimator, X, y, arguments of fit that have one entry a row)."""
    X = inputs()
    yield "gaussian", GPRegressor(**QUICK), X, number(X), {}
    yield "gaussian_plain", GPRegressor(predictive="plain", **QUICK), X, number(X), {}
    yield "k_given", GPRegressor(k=20, kernel="matern12", **QUICK), X, number(X), {}
    yield "rational_quadratic", GPRegressor(kernel="rational_quadratic", **QUICK), X, number(X), {}
    given = {"sample_weight": 1.0 + np.arange(len(X)) % 3, "noise_variance": 0.01 * (1 + np.arange(len(X)) % 2)}
    yield "weights_and_noise", GPRegressor(**QUICK), X, number(X), given
    yield "groups", GPRegressor(**QUICK), X, number(X), {"groups": np.arange(len(X)) // 4}
    yield "student_t", GPRegressor(likelihood="student_t", **QUICK), X, outliers(X), {}
    plain = {"likelihood": "student_t", "predictive": "plain"}
    yield "student_t_plain", GPRegressor(**plain, **QUICK), X, outliers(X), {}
    yield "linear_mean", GPRegressor(mean="linear", **QUICK), X, number(X), {}
    yield "vecchia", GPRegressor(objective="vecchia", k=16, **QUICK), X, number(X), {}
    yield "mll", GPRegressor(objective="mll", k=16, **QUICK), X, number(X), {}
    few = np.r_[0:6, N : N + 2 * NEW]
    yield "untrained", GPRegressor(**QUICK), X[few], number(X)[few], {}
    large = inputs(340)
    yield "many_rows", GPRegressor(**QUICK), large, number(large), {}
    for how in ("lmc", "independent", "shared"):
        yield f"outputs_{how}", GPRegressor(outputs=how, **QUICK), X, outputs(X), {}
        yield f"outputs_{how}_gaps", GPRegressor(outputs=how, **QUICK), X, outputs(X, gaps=True), {}
    yield "outputs_one_latent", GPRegressor(n_latents=1, **QUICK), X, outputs(X), {}
    yield "outputs_plain", GPRegressor(predictive="plain", **QUICK), X, outputs(X), {}


def classifications():
    X = inputs()
    two, three = ["no", "yes"], [1, 5, 7]
    for auxiliary in ("tied", "conjugate", "lognormal"):
        yield f"two_{auxiliary}", GPClassifier(auxiliary=auxiliary, **QUICK), X, labels(X, 2, two), {}
        yield f"three_{auxiliary}", GPClassifier(auxiliary=auxiliary, **QUICK), X, labels(X, 3, three), {}
    yield "two_plain", GPClassifier(predictive="plain", **QUICK), X, labels(X, 2, [False, True]), {}
    yield "three_plain", GPClassifier(predictive="plain", **QUICK), X, labels(X, 3, three), {}
    days = np.array(["2024-01-31", "2024-02-29", "2024-12-01"], dtype="datetime64[D]")
    yield "three_days", GPClassifier(**QUICK), X, labels(X, 3, days), {}
    own = GPClassifier(class_kernels="own", **QUICK)
    yield "three_own_kernels", own, X, labels(X, 3, [1.0, 2.0, 3.0]), {"sample_weight": 1.0 + np.arange(len(X)) % 2}


def counted():
    X = inputs()
    exposure, trials = 1.0 + np.arange(len(X)) % 3, 4 + np.arange(len(X)) % 5
    for auxiliary in ("curvature", "conjugate"):
        model = GPCountRegressor(auxiliary=auxiliary, **QUICK)
        yield f"counts_{auxiliary}", model, X, counts(X, exposure), {"exposure": exposure}
        model = GPCountRegressor(likelihood="binomial", auxiliary=auxiliary, **QUICK)
        yield f"binomial_{auxiliary}", model, X, successes(X, trials), {"trials": trials}
    yield "counts_plain", GPCountRegressor(predictive="plain", **QUICK), X, counts(X, 1.0), {}


def predictions(model, X, y, given):
    """All that a fitted model says about the rows X (b, d), by name."""
    found = {"loo_" + name: part for name, part in model.loo_._asdict().items()}
    if hasattr(model, "predict_proba"):
        return found | {"proba": model.predict_proba(X), "log_score": np.array(model.log_score(X, y))}
    if hasattr(model, "dispersion_"):
        dist = model.predict_dist(X, **given)
        low, high = model.predict_interval(X, **given)
        scores = {"pmf": dist.pmf(y), "cdf": dist.cdf(y), "low": low, "high": high}
        return found | scores | {"mean": dist.mean(), "std": dist.std()}
    mean, std = model.predict(X, return_std=True)
    low, high = model.predict_interval(X, coverage=0.8)
    found |= {"mean": mean, "std": std, "low": low, "high": high}
    found["latent_std"] = model.predict(X, return_std=True, uncertainty="latent")[1]
    if y.ndim == 2:
        found["covariance"] = model.predict(X, return_cov=True)[1]
        found["joint"] = np.array(model.log_score(X, y, joint=True))
    return found


def write_models(folder):
    for name, model, X, y, given in [*regressions(), *classifications(), *counted()]:
        n = len(X) - 2 * NEW
        first, more, new = slice(0, n), slice(n, n + NEW), slice(n + NEW, None)
        model.fit(X[first], y[first], **{key: values[first] for key, values in given.items()})
        model.save(folder / f"{name}.nearfield")
        kept = {key: values for key, values in given.items() if key in ("exposure", "trials")}
        expected = predictions(model, X[new], y[new], {key: values[new] for key, values in kept.items()})
        later = {key: values for key, values in given.items() if key != "groups"}
        model.update(X[more], y[more], **{key: values[more] for key, values in later.items()})
        updated = predictions(model, X[new], y[new], {key: values[new] for key, values in kept.items()})
        data = {"X_new": X[new], "y_new": y[new], "X_more": X[more], "y_more": y[more]}
        data |= {f"{key}_new": values[new] for key, values in kept.items()}
        data |= {f"{key}_more": values[more] for key, values in later.items()}
        both = {f"expected.{key}": value for key, value in expected.items()}
        both |= {f"updated.{key}": value for key, value in updated.items()}
        np.savez_compressed(folder / f"{name}.npz", **data, **both)


COLUMNS = ("size", "colour", "day", "flag", "note", "count", "hours", "kind", "y", "z")


def write_table(path):
    """A table with text, dates, flags and gaps."""
    rng = np.random.default_rng(6)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in range(120):
            size, colour, flag = rng.standard_normal(), rng.integers(3), bool(rng.integers(2))
            y = np.sin(2 * size) + colour + 0.1 * rng.standard_normal()
            writer.writerow([
                "" if row % 11 == 3 else f"{size:.4f}",
                "NA" if row % 17 == 5 else ("red", "green", "blau ü")[colour],
                "" if row % 19 == 7 else f"2024-{1 + row % 12:02}-{1 + row % 28:02}",
                str(flag).lower(),
                ("a, b", 'say "x"')[row % 2],
                rng.poisson(np.exp(1 + 0.5 * size) * (1 + row % 3)),
                1 + row % 3,
                ("low", "mid", "high")[int(np.digitize(y, [0.5, 1.5]))],
                f"{y:.4f}",
                "" if row % 7 == 2 else f"{y - size:.4f}",
            ])  # fmt: skip


def run(*arguments):
    command = [sys.executable, "-c", "import sys; from nearfield.cli import main; sys.exit(main())", *arguments]
    return subprocess.run([str(a) for a in command], check=True, capture_output=True, text=True).stdout


def drop(*names):
    return [argument for name in names for argument in ("--drop", name)]


def write_tables(folder):
    """Models of the command line, their predictions and scores of their own table."""
    table = folder / "table.csv"
    write_table(table)
    for name, arguments in {
        "table_number": ["--target", "y", *drop("kind", "z", "count", "hours")],
        "table_classes": ["--target", "kind", *drop("y", "z", "count", "hours")],
        "table_counts": ["--target", "count", "--exposure", "hours", *drop("y", "z", "kind")],
        "table_outputs": ["--target", "y", "--target", "z", *drop("kind", "count", "hours")],
    }.items():
        model = folder / f"{name}.nearfield"
        run("fit", table, *arguments, "--out", model, "--quiet")
        run("predict", model, table, "--out", folder / f"{name}.csv")
        scores = json.loads(run("evaluate", model, table, "--json"))
        (folder / f"{name}.json").write_text(json.dumps(scores, indent=1) + "\n")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    write_models(folder)
    write_tables(folder)
