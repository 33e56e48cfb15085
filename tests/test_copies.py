"""Rows that are there more than once: a table that is tiled is taken once, copies are told, and error bars hold."""

import functools
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn
from cli_runs import runner, short_training, write
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts, small, through_file
from family_examples import CASES, case
from sklearn.ensemble import BaggingRegressor

from nearfield import CopiesWarning, GPRegressor, TrainingRowsWarning
from nearfield.copied import TOLD, Copies
from nearfield.families import taken

LAYOUTS = {
    "the table again and again": lambda n, times: np.tile(np.arange(n), times),
    "each row again and again": lambda n, times: np.repeat(np.arange(n), times),
    "in any order": lambda n, times: np.random.default_rng(1).permutation(np.tile(np.arange(n), times)),
}


def frame(n=120):
    """Text of many levels, which becomes means of other rows, and a column with gaps."""
    rng = np.random.default_rng(0)
    town, height = rng.integers(0, 200, n) % 90, rng.standard_normal(n)
    y = np.sin(town) + height + 0.1 * rng.standard_normal(n)
    height[::7] = np.nan
    return pd.DataFrame({"town": [f"town {i}" for i in town], "height": height, "x": rng.random(n)}), y


def several(n=60):
    X, y = small(n)
    Y = np.stack([y, np.cos(X[:, 1])], axis=1)
    Y[::5, 1] = np.nan
    return X, Y


def exposed(n=60):
    X, y, _ = counted(n)
    return X, y, {"exposure": np.linspace(1, 2, n)}


TABLES = {
    "numbers": (quick, lambda: small(60)),
    "few neighbours": (lambda: quick(k=8), lambda: small(60)),
    "heavy tails": (lambda: quick(likelihood="student_t"), lambda: small(60)),
    "several outputs": (lambda: quick(outputs="shared"), several),
    "text": (quick, frame),
    "labels": (quick_classifier, lambda: labelled(60)),
    "counts": (quick_counts, exposed),
    "known noise": (quick, lambda: (*small(60), {"noise_variance": np.linspace(0, 0.1, 60)})),
    "groups": (quick, lambda: (*small(60), {"groups": np.arange(60) // 2})),
    "near copies": (quick, lambda: (*small(60), {"groups": "auto"})),
}


def rows_of(X, y, given, which):
    """The rows `which` of a table."""
    further = {name: value if isinstance(value, str) else value[which] for name, value in given.items()}
    return (X.iloc[which] if hasattr(X, "iloc") else X[which]), y[which], further


def predicted(model, X, given):
    extra = {name: value[:20] for name, value in given.items() if name == "exposure"}
    if hasattr(model, "predict_proba"):
        return [model.predict_proba(X[:20])]
    return list(model.predict(X[:20], return_std=True, **extra))


@functools.cache
def fitted(kind):
    """Of a table that is there once."""
    make, table = TABLES[kind]
    X, y, *rest = table()
    given = rest[0] if rest else {}
    return X, y, given, make().fit(X, y, **given)


# --- the whole table several times ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(("times", "layout"), [(2, "the table again and again"), (3, "each row again and again")])
def test_a_table_that_is_there_several_times_has_the_bits_of_its_distinct_rows(kind, times, layout):
    X, y, given, alone = fitted(kind)
    which = LAYOUTS[layout](len(y), times)
    many, target, further = rows_of(X, y, given, which)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", CopiesWarning)
        model = TABLES[kind][0]().fit(many, target, **further)
    told = [str(one.message) for one in said if issubclass(one.category, CopiesWarning)]
    assert len(told) == (kind != "near copies")
    assert all(f"Every row is there {times} times" in one and f"once, {len(y)} rows" in one for one in told)
    for ours, theirs in zip(predicted(model, X, given), predicted(alone, X, given), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(model.loo_, alone.loo_, strict=True):
        np.testing.assert_array_equal(ours, theirs[which])
    assert model.n_rows_ == model.summary_.rows == times * len(y)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.filterwarnings("ignore::nearfield.CopiesWarning")
def test_ten_times_also_from_a_file_explained_and_updated(layout, tmp_path):
    X, y = small(50)
    which = LAYOUTS[layout](50, 10)
    first = np.sort(np.unique(which, return_index=True)[1])  # the distinct rows as they come
    own = which[first]
    alone = quick().fit(X[own], y[own])
    model = quick().fit(X[which], y[which])
    with pytest.warns(TrainingRowsWarning):
        model = through_file(model, tmp_path)
    new = X[:9] + 0.01
    np.testing.assert_array_equal(model.predict(new, return_std=True), alone.predict(new, return_std=True))
    place = np.argsort(own)[which]
    np.testing.assert_array_equal(model.loo_.std, alone.loo_.std[place])
    np.testing.assert_array_equal(model.explain(new).neighbours, first[alone.explain(new).neighbours])
    ends = [one.predict_interval(new, method="jackknife+") for one in (model, alone)]
    np.testing.assert_array_equal(*ends)
    for one in (model, alone):
        one.update(new, np.zeros(9))
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    assert model.n_rows_ == 509
    assert model.loo_.mean.shape == (509,)
    np.testing.assert_array_equal(model.loo_.mean[:500], alone.loo_.mean[:50][place])


@pytest.mark.filterwarnings("ignore::nearfield.CopiesWarning")
def test_rows_that_do_not_count_keep_their_numbers():
    X, y = small(40)
    which, weights = np.tile(np.arange(40), 2), np.tile(np.r_[0.0, np.ones(39)], 2)
    alone = quick(k=8).fit(X, y, sample_weight=weights[:40])
    model = quick(k=8).fit(X[which], y[which], sample_weight=weights)
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    np.testing.assert_array_equal(model.explain(X).neighbours, alone.explain(X).neighbours)
    np.testing.assert_array_equal(model.loo_.mean, np.tile(alone.loo_.mean, 2))


@pytest.mark.filterwarnings("ignore::nearfield.CopiesWarning")
def test_a_table_with_copies_of_its_own_is_taken_once_too():
    X, y = small(60)
    own = np.r_[np.arange(60), 0]
    once, twice = (quick().fit(X[which], y[which]) for which in (own, np.tile(own, 2)))
    np.testing.assert_array_equal(once.predict(X + 0.1), twice.predict(X + 0.1))
    np.testing.assert_array_equal(twice.loo_.mean, np.tile(once.loo_.mean, 2))


def test_what_few_rows_have_in_common_is_chance():
    """Two inputs with two outcomes each, ten times as often as could be: honest repetitions."""
    X, y = np.zeros((100, 1)), np.zeros(100)
    X[50:], y[:20], y[50:90] = 1.0, 1.0, 1.0
    with pytest.warns(CopiesWarning, match=r"96% of the rows \(96 of 100\)"):
        assert len(quick().fit(X, y)._fit.predictor.rows) == 4
    assert Copies.of(*_gaussian(X, y)).common == 1


def _gaussian(X, y):
    family = case("gaussian:", 5).family
    return family, X, family.observe(y, np.ones(len(y)))


# --- labels and counts ----------------------------------------------------------------------------------------------


def test_labels_and_counts_at_equal_inputs_are_no_copies():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (300, 2)).astype(float)
    labels = (rng.random(300) < 0.2 + 0.6 * (X[:, 0] > 1)).astype(int)
    gates = np.tile([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], (25, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", CopiesWarning)
        quick_classifier().fit(X, labels)
        quick_classifier().fit(np.tile(X, (2, 1)), np.tile(labels, 2))
        quick_counts().fit(X, rng.poisson(1 + X[:, 0]))
        model = quick_classifier().fit(gates, gates[:, 0] != gates[:, 1])
    assert model._fit.predictor.rows.observations.weights.sum() == 100


def test_labels_whose_rows_are_copies_are_told():
    X, y = labelled(90)
    which = np.r_[np.arange(90), np.arange(30)]
    with pytest.warns(CopiesWarning, match=r"25% of the rows \(30 of 120\)") as said:
        quick_classifier().fit(X[which], y[which])
    assert 'groups="auto"' in str(said[0].message)
    assert "drop them from the table" in str(said[0].message)


# --- some rows more often -------------------------------------------------------------------------------------------


def told_of(fit):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit()
    return [str(one.message) for one in said if "cop" in str(one.message)]


def test_copies_are_told_once_with_their_share_and_the_remedy():
    X, y = small(300)
    which = np.r_[np.arange(300), np.arange(100)]
    near = X + 1e-4 * np.random.default_rng(0).standard_normal(X.shape)
    (told,) = told_of(lambda: quick().fit(np.r_[X[which], near], np.r_[y[which], y]))
    assert "14% of the rows (100 of 700) are exact copies" in told
    (told,) = told_of(lambda: quick().fit(X[which], y[which]))
    assert told.startswith("25% of the rows (100 of 400) are exact copies of another row")
    assert 'groups="auto"' in told
    assert "--groups auto" in told
    assert not told_of(lambda: quick().fit(X[which], y[which], groups="auto"))
    (told,) = told_of(lambda: quick().fit(X[which], y[which], groups=np.arange(400)))
    assert "25% of the rows" in told
    assert "groups" not in told  # they are there already
    with pytest.warns(CopiesWarning, match="exact copies") as said:
        quick().fit(X[which], y[which])
    assert said[0].filename == __file__


def test_few_coincidences_and_counts_that_were_given_are_not_told():
    X, y = small(300)
    few = np.r_[np.arange(300), np.arange(int(TOLD * 300))]
    assert not told_of(lambda: quick().fit(X[few], y[few]))
    assert not told_of(lambda: quick().fit(X, y, sample_weight=np.arange(300) % 3))
    again = np.repeat(X[:150], 2, axis=0)
    assert not told_of(lambda: quick().fit(again, y))  # the same inputs, measured again


def test_the_command_line_tells_of_copies(tmp_path, capsys):
    X, y = small(60)
    which = np.r_[np.arange(60), np.arange(20)]
    table = pa.table({"a": X[which, 0], "b": X[which, 1], "y": y[which]})
    train, out, run = write(tmp_path / "train.csv", table), tmp_path / "m.nearfield", runner(capsys)
    with short_training():
        default, auto = (run("fit", train, "--target", "y", "--out", out, *more) for more in ([], ["--groups", "auto"]))
    (line,) = [line for line in default.err.splitlines() if "copies" in line]
    assert line.startswith("nearfield: warning: 25% of the rows (20 of 80)")
    assert "--groups auto" in line
    assert auto.code == default.code == 0
    assert "copies" not in auto.err


# --- error bars -----------------------------------------------------------------------------------------------------


def bootstrap(rng, n):
    return rng.integers(0, n, n)


def a_third_twice(rng, n):
    return np.r_[np.arange(n), rng.permutation(n)[: n // 3]]


def waves(rng, n):
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=n)


def share_covered(model, X, y):
    low, high = model.predict_interval(X)
    return np.mean((low <= y) & (y <= high))


@pytest.mark.parametrize(("copied", "jitter"), [(bootstrap, 0.0), (a_third_twice, 0.0), (a_third_twice, 1e-3)])
def test_intervals_hold_with_groups_auto(copied, jitter):
    shares = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        (X, y), (X_new, y_new) = waves(rng, 150), waves(rng, 1000)
        which = copied(rng, 150)
        rows = X[which] + jitter * rng.standard_normal((len(which), 2))
        shares.append(share_covered(GPRegressor(random_state=0).fit(rows, y[which], groups="auto"), X_new, y_new))
    assert 0.86 <= np.mean(shares) <= 0.94


def test_exact_copies_count_once_with_groups_auto():
    """As the distinct rows; as weights, which count copies; in whatever order."""
    X, y = small(80)
    rng = np.random.default_rng(0)
    which = bootstrap(rng, 80)
    counts = np.bincount(which, minlength=80)
    own = np.flatnonzero(counts)
    alone = quick().fit(X[own], y[own], groups="auto")
    model = quick().fit(X[which], y[which], groups="auto")
    weighted = quick().fit(X, y, sample_weight=counts, groups="auto")
    for other in (model, weighted):
        np.testing.assert_array_equal(other.predict(X, return_std=True), alone.predict(X, return_std=True))
    np.testing.assert_array_equal(model.loo_.mean, alone.loo_.mean[np.searchsorted(own, which)])
    np.testing.assert_array_equal(weighted.loo_.mean, alone.loo_.mean)
    assert (model.n_rows_, weighted.n_rows_) == (80, len(own))


def bagged(model, X, y, **requested):
    """Bagging of one model, to which groups="auto" is passed on."""
    with sklearn.config_context(enable_metadata_routing=True):
        own = model.set_fit_request(groups=True, **requested)
        return BaggingRegressor(own, n_estimators=1, random_state=0).fit(X, y, groups="auto")


def test_intervals_hold_with_bagging_and_groups_auto():
    shares = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        (X, y), (X_new, y_new) = waves(rng, 240), waves(rng, 1000)
        (model,) = bagged(GPRegressor(random_state=0), X, y, sample_weight=True).estimators_
        shares.append(share_covered(model, X_new, y_new))
    assert 0.86 <= np.mean(shares) <= 0.94


@pytest.mark.parametrize("requested", [{"sample_weight": True}, {}])
def test_bagging_has_the_fit_of_the_distinct_rows(requested):
    """Copies come as weights or, where nobody asks for these, as rows."""
    X, y = small(80)
    bag = bagged(quick(), X, y, **requested)
    (model,), (drawn,) = bag.estimators_, bag.estimators_samples_
    own = np.unique(drawn)
    alone = quick(random_state=model.random_state).fit(X[own], y[own], groups="auto")
    np.testing.assert_array_equal(model.predict(X, return_std=True), alone.predict(X, return_std=True))
    assert model.n_rows_ == (len(own) if requested else 80)


def test_rows_at_random_are_no_near_copies():
    """Some are as near to each other as copies, in few columns, and the fit is that without groups."""
    for d in (1, 2, 3):
        rng = np.random.default_rng(d)
        X = rng.random((200, d))
        model = quick(max_steps=2).fit(X, X[:, 0] + 0.1 * rng.standard_normal(200), groups="auto")
        assert model._fit.predictor.rows.groups is None


def test_near_copies_are_known_by_their_targets_and_count_as_one():
    """In one column neighbours are as near as copies, which no gap tells; rounded targets say nothing."""
    rng = np.random.default_rng(0)
    which = np.repeat(np.arange(200), np.arange(200) % 3 + 1)
    X = rng.uniform(-2, 2, 200)[which, None] + 2e-3 * rng.standard_normal((len(which), 1))
    y = np.sin(3 * X[:, 0])[np.unique(which, return_index=True)[1]] + 0.3 * rng.standard_normal(200)
    model = quick().fit(X, y[which], groups="auto")
    rows = model._fit.predictor.rows
    assert rows.observed["weight"].sum() == pytest.approx(200)
    weights = rows.observed["weight"][model._places]
    np.testing.assert_allclose(weights, 1 / (which % 3 + 1))
    groups = rows.groups[model._places]
    assert all(len(set(groups[which == i])) == 1 for i in range(200))
    model.fit(X, np.round(y[which]), groups="auto")
    assert (model._fit.predictor.rows.observed["weight"] == 1).all()


def test_near_copies_with_the_same_targets_are_told_where_they_are_a_fifth():
    X, y = small(200)
    which = np.r_[np.arange(200), np.arange(40)]
    near = X[which] + 1e-4 * np.random.default_rng(0).standard_normal((240, 3))
    with pytest.warns(CopiesWarning, match="have a near copy"):
        quick().fit(near, y[which])
    assert not told_of(lambda: quick().fit(near, y[which], groups="auto"))
    assert not told_of(lambda: quick().fit(near[:220], y[which[:220]]))


# --- counting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", CASES)
@pytest.mark.parametrize("grouped", [False, True])
def test_copies_are_counted_as_by_a_dictionary(which, grouped):
    given = case(which, 40)
    again = np.random.default_rng(0).integers(0, 40, 90)
    X, observed = given.X[again], taken(given.observed, again)
    groups = np.arange(90) % 2 if grouped else None
    found = Copies.of(given.family, X, observed, groups)
    keys = [
        (X[i].tobytes(), *(observed[name][i].tobytes() for name in sorted(observed)), grouped and i % 2)
        for i in range(90)
    ]
    if given.family.repeats and grouped:  # groups tell rows with the same inputs apart
        assert (found.times == 1).all()
        return
    times = Counter(keys)
    assert [found.times[row] for row in found.row] == [times[key] for key in keys]
    assert len({*zip(found.row.tolist(), keys, strict=True)}) == len(times)
    once = found.distinct(once=True)
    assert [keys[i] for i in np.flatnonzero(once.which)] == list(times)  # the first of each, as they come
    assert [list(times)[place] for place in once.own] == keys
    assert found.common == 1
    assert found.distinct(once=False) is None
