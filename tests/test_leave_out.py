"""Groups, time, space: left-out moments by dense algebra, coverage of the task, errors, files, updates."""

from __future__ import annotations

import csv
import datetime
import sys
import warnings
from pathlib import Path

import dense
import numpy as np
import pytest
from estimator_data import counted, labelled, load_forged, quick, quick_classifier, quick_counts, small, through_file
from scipy.stats import multivariate_normal
from sklearn.base import clone

from nearfield import GPClassifier, GPRegressor, ModelFileError
from nearfield.cli import main
from nearfield.heads._units import independent_rows, widening

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

pytestmark = [
    pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning"),
    pytest.mark.filterwarnings("ignore:.*rows are few for.*:UserWarning"),
]

N = 70
RNG = np.random.default_rng(3)
GROUPS, TIMES = RNG.integers(0, 9, N), RNG.integers(0, 40, N).astype(float)
WAYS = {
    "groups": ({}, {"groups": GROUPS}),
    "past": ({"leave_out": "past"}, {"times": TIMES}),
    "buffer": ({"buffer": 0.6}, {}),
    "past and groups": ({"leave_out": "past"}, {"groups": GROUPS, "times": TIMES}),
    "past and buffer": ({"leave_out": "past", "buffer": {0: 0.4, "x1": 0.7}}, {"times": TIMES}),
}


def unseen(X, made, fitted):
    """Which rows (n, n) a row may not be predicted from: written down once more, row by row."""
    hidden = np.eye(len(X), dtype=bool)
    if "groups" in fitted:
        hidden |= fitted["groups"][:, None] == fitted["groups"]
    if "times" in fitted:
        hidden |= fitted["times"][:, None] <= fitted["times"]
    if "buffer" in made:
        asked = made["buffer"]
        every = dict.fromkeys(range(X.shape[1]), asked)
        radii = {0: asked[0], 1: asked["x1"]} if isinstance(asked, dict) else every
        off = sum(((X[:, None, e] - X[:, e]) / radius) ** 2 for e, radius in radii.items())
        hidden |= off <= 1
    return hidden


def kinds():
    X, y = small(N)
    return {
        "number": (quick, X, y),
        "classes": (quick_classifier, *labelled(N, 3)),
        "counts": (quick_counts, *counted(N)[:2]),
    }


@pytest.mark.parametrize("kind", ["number", "classes", "counts"])
@pytest.mark.parametrize("way", WAYS)
def test_left_out_moments_are_those_of_the_rows_that_may_be_seen(kind, way):
    make, X, y = kinds()[kind]
    made, fitted = WAYS[way]
    model = make(max_steps=8, **made).fit(X, y, **fitted)
    predictor = model._fit.predictor
    inner, rows = predictor.model, predictor.rows
    assert len(rows) == N == len(rows.observations)
    assert model.k_ == N - 1
    found = predictor.sweeper.left_out(np.arange(N), np.array([model.k_])).at(0)
    targets, noises = dense.sites_of(inner, rows.observed, rows.state)
    hidden, blind = unseen(X, made, fitted), 0
    for i in range(N):
        seen = ~hidden[i]
        blind += not seen.any()
        mean, spread = dense.posterior(inner, rows.inputs[seen], targets[seen], noises[seen], rows.inputs[i : i + 1])
        np.testing.assert_allclose(found.mean[i], mean[0], atol=1e-7)
        np.testing.assert_allclose(found.variance[i], np.diag(spread[0]), atol=1e-7)
    assert bool(blind) == ("past" in way)  # the first rows see nothing: the prior
    assert "Rows are left out with" in str(model.summary_)
    assert len(model.loo_[0]) == N


def test_rows_of_several_labels_are_left_out_with_their_group():
    X, y = labelled(30)
    X, y, group = np.tile(X, (3, 1)), np.concatenate([y, y, 1 - y]), np.tile(np.arange(30), 3)
    model = quick_classifier(max_steps=8).fit(X, y, groups=group)
    rows = model._fit.predictor.rows
    assert len(rows) == 30
    assert not rows.observations.alone.any()
    ids = model._fit.predictor.sweeper.left_out_ids(np.arange(len(rows.observations)), 29)
    assert not (ids == rows.observations.row[:, None]).any()
    found = model.loo_.probability
    np.testing.assert_allclose(found[:30], found[60:], atol=1e-9)  # whatever the label of the row was
    # at different times they are different rows
    timed = quick_classifier(max_steps=8, leave_out="past").fit(X, y, times=np.repeat([1, 2, 3], 30))
    assert len(timed._fit.predictor.rows) == 90


def test_densities_of_rows_given_earlier_ones_are_their_joint_density():
    X, y = small(40)
    order = np.random.default_rng(0).permutation(40)
    model = quick(leave_out="past", predictive="plain").fit(X, y, times=order)
    inner, rows = model._fit.predictor.model, model._fit.predictor.rows
    std, z = model.loo_.std, model.loo_.residual / model.loo_.std
    one_by_one = float(np.sum(-0.5 * z**2 - np.log(std)) - 20 * np.log(2 * np.pi))
    K = dense.prior(inner, rows.inputs, rows.inputs)[:, 0, :, 0] + inner.noise[0] * np.eye(40)
    joint = multivariate_normal(dense.level(inner, rows.inputs)[:, 0] * np.ones(40), K).logpdf(rows.observed["y"])
    assert one_by_one == pytest.approx(joint - 40 * np.log(model.target_std_), abs=1e-6)


def test_left_out_rows_are_predicted_as_a_model_of_earlier_rows_does():
    """Sequential prediction: the same hyper-parameters, and rows that come one after the other."""
    X, y = small(60)
    model = quick(leave_out="past", predictive="plain").fit(X[:40], y[:40], times=np.arange(40))
    ahead = []
    for i in range(40, 60):
        ahead.append(model.predict(X[i : i + 1])[0])
        model.update(X[i : i + 1], y[i : i + 1], times=[i])
    np.testing.assert_allclose(model.loo_.mean[40:], ahead, atol=1e-9)
    before = model.loo_.mean[:40]
    np.testing.assert_allclose(
        quick(leave_out="past", predictive="plain").fit(X[:40], y[:40], times=np.arange(40)).loo_.mean,
        before,
        atol=1e-9,
    )


def test_the_first_rows_do_not_count():
    X, y = small(200)
    y = np.where(np.arange(200) < 5, 50.0, y)  # who sees nothing cannot know
    model = quick(leave_out="past", k=20, max_steps=8).fit(X, y, times=np.arange(200))
    assert model.summary_.left_out_rows == 192
    seeing = model._fit.predictor.rows.seeing(np.arange(200))
    np.testing.assert_array_equal(seeing, np.arange(200) >= 8)  # of the nearest 16, half


# --- coverage of the task -------------------------------------------------------------------------------------------


def coverage(make, **sizes):
    from left_out_tasks import scored

    found = [scored(make(seed, **sizes), True, "shared")[0] for seed in range(6)]
    return float(np.mean(found))


def test_new_groups_are_covered():
    from left_out_tasks import effects

    assert 0.86 <= coverage(effects, groups=25, each=5) <= 0.94


def test_forecasts_are_covered():
    from left_out_tasks import series

    assert 0.86 <= coverage(series, n=110) <= 0.94


def test_places_between_clusters_are_covered():
    from left_out_tasks import clusters

    assert 0.86 <= coverage(clusters, n_clusters=40, each=4) <= 0.94


def test_units_count_as_many_rows_as_they_tell():
    rng = np.random.default_rng(0)
    label, ones = np.repeat(np.arange(50), 20), np.ones(1000)
    alike = np.repeat(rng.random(50) < 0.9, 20)
    apart = rng.random(1000) < 0.9
    assert independent_rows(alike, ones, label) == pytest.approx(49, rel=1e-9)
    assert 400 < independent_rows(apart, ones, label) < 2500
    needed = np.sort(rng.chisquare(1, 1000)) / 2.7
    assert widening(needed, ones, np.arange(1000)) == pytest.approx(max(1, np.quantile(needed, 0.901)), rel=0.02)
    assert widening(np.repeat(rng.chisquare(1, 9) / 2.7, 20), np.ones(180), np.repeat(np.arange(9), 20)) >= 1


# --- what users pass ------------------------------------------------------------------------------------------------


def test_times_may_be_dates_or_a_column():
    pandas = pytest.importorskip("pandas")
    X, y = small(40)
    days = np.arange(40) // 2
    dates = np.datetime64("2024-01-01") + days.astype("timedelta64[D]")
    made = {"leave_out": "past", "k": 10}
    want = quick(**made).fit(X, y, times=days).loo_.mean
    texts = [str(date) for date in dates]
    for times in (dates, pandas.Series(dates), texts, [datetime.date.fromisoformat(text) for text in texts]):
        np.testing.assert_array_equal(quick(**made).fit(X, y, times=times).loo_.mean, want)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"]).assign(day=dates)
    named = quick(**made).fit(frame, y, times="day")
    np.testing.assert_array_equal(named.loo_.mean, quick(**made).fit(frame, y, times=3).loo_.mean)
    assert "day" in named.feature_relevance_
    later = frame.assign(day=dates + np.timedelta64(30, "D"))
    assert len(named.update(later[:3], y[:3]).loo_.mean) == 43  # from the column
    gone = frame.assign(day=np.where(np.arange(40) == 7, np.datetime64("NaT"), dates))
    with pytest.raises(ValueError, match=r"column 'day', of times, has 1 missing values in 40 rows, first in row 7"):
        quick(**made).fit(gone, y, times="day")


MISTAKES = [
    ({"leave_out": "future"}, {}, "leave_out is 'future': expected one of 'one', 'past'"),
    ({"leave_out": "past"}, {}, "leave_out is 'past', but fit got no times: pass times="),
    ({}, {"times": np.arange(30)}, "times were given, but leave_out is 'one'"),
    ({"leave_out": "past"}, {"times": np.zeros(30)}, "times are the same for all rows"),
    ({"leave_out": "past"}, {"times": np.arange(29)}, r"times has shape \(29,\): expected \(30,\)"),
    ({"leave_out": "past"}, {"times": np.ones((30, 2))}, r"times has shape \(30, 2\)"),
    ({"leave_out": "past"}, {"times": np.where(np.arange(30) == 4, np.nan, 1.0)}, "first in row 4"),
    ({"leave_out": "past"}, {"times": np.where(np.arange(30) == 4, np.inf, 1.0)}, "infinite"),
    ({"leave_out": "past"}, {"times": ["soon"] * 30}, "'soon' in row 0; a date like"),
    ({"leave_out": "past"}, {"times": "when"}, "times names a column 'when' that is not there"),
    ({"leave_out": "past", "objective": "mll"}, {"times": np.arange(30)}, "objective is 'mll'"),
    ({"buffer": 0}, {}, "buffer is 0: expected a distance above zero"),
    ({"buffer": -1.0}, {}, "buffer is -1.0"),
    ({"buffer": np.inf}, {}, "buffer is inf"),
    ({"buffer": "far"}, {}, "buffer is 'far'"),
    ({"buffer": {}}, {}, "buffer is {}"),
    ({"buffer": {"x9": 1.0}}, {}, "buffer names a column 'x9' that is not there"),
    ({"buffer": {"x1": True}}, {}, "buffer is {'x1': True}"),
    ({"buffer": 99.0}, {}, "buffer is 99 of x0, 99 of x1, 99 of x2: within that distance no row has another"),
    ({"coordinates": [0, 1], "buffer": 99.0}, {}, "buffer is 99: within that distance"),
    ({"coordinates": {"lonlat": [0, 1]}, "buffer": {"x0": 1.0}}, {}, "'x0', which is a longitude or latitude"),
    ({"coordinates": {"lonlat": [0, 1]}, "buffer": 200.0}, {}, "no place is 180 degrees or more"),
    ({}, {"groups": np.zeros(30)}, "groups has one label for all rows"),
]


@pytest.mark.parametrize(("made", "fitted", "message"), MISTAKES)
def test_mistakes_are_told_and_nothing_is_half_done(made, fitted, message):
    X, y = small(30)
    model = quick(max_steps=8).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match=message):
        model.set_params(**made).fit(X, y, **fitted)
    np.testing.assert_array_equal(model.predict(X), before)


def test_classes_and_counts_are_told_the_same():
    for make, (X, y) in ((quick_classifier, labelled(30)), (quick_counts, counted(30)[:2])):
        with pytest.raises(ValueError, match="fit got no times"):
            make(leave_out="past").fit(X, y)
        with pytest.raises(ValueError, match="one label for all rows"):
            make().fit(X, y, groups=["a"] * 30)


def test_gaps_and_text_have_no_distance():
    pandas = pytest.importorskip("pandas")
    X, y = small(30)
    frame = pandas.DataFrame({"x": X[:, 0], "gap": np.where(np.arange(30) == 3, np.nan, X[:, 1]), "t": ["u", "v"] * 15})
    for column, message in (("gap", "'gap', which has missing values"), ("t", "'t', which has text values")):
        with pytest.raises(ValueError, match=message):
            quick(buffer={column: 1.0}).fit(frame, y)


def test_distances_of_a_buffer_are_those_on_the_ground():
    """Turned axes and the globe: who sees whom is found from angles and distances of the given columns."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0, 10, 80), rng.uniform(55, 65, 80)])
    y = np.sin(X[:, 0] + 2 * X[:, 1]) + 0.1 * rng.standard_normal(80)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        globe = quick(coordinates="lonlat", buffer=1.5, max_steps=8).fit(X, y)
        plane = quick(coordinates=[0, 1], buffer=1.5, max_steps=8).fit(X, y)
        apart = quick(coordinates=[0, 1], buffer={0: 1.0, 1: 3.0}, max_steps=8).fit(X, y)
    lon, lat = np.radians(X).T
    cosine = np.sin(lat) * np.sin(lat[:, None]) + np.cos(lat) * np.cos(lat[:, None]) * np.cos(lon - lon[:, None])
    off = X[:, None] - X
    expected = (
        (globe, np.degrees(np.arccos(np.clip(cosine, -1, 1))) <= 1.5),
        (plane, (off**2).sum(axis=-1) <= 1.5**2),
        (apart, ((off / [1.0, 3.0]) ** 2).sum(axis=-1) <= 1),
    )
    for model, hidden in expected:
        spots = model._fit.predictor.rows.hidden.spots
        found = ((spots[:, None] - spots) ** 2).sum(axis=-1) <= 1
        np.testing.assert_array_equal(found, hidden)
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), axis=-1).reshape(-1, 2)
    near = quick(buffer=1.0, max_steps=8).fit(grid, grid[:, 0]).loo_.mean[14]  # the nearest are hidden, too
    assert quick(buffer=1.001, max_steps=8).fit(grid, grid[:, 0]).loo_.mean[14] == pytest.approx(near, rel=1e-6)


def test_guaranteed_intervals_are_refused():
    X, y = small(40)
    for made, fitted, name in (
        ({"leave_out": "past"}, {"times": np.arange(40)}, "leave_out"),
        ({"buffer": 0.3}, {}, "buffer="),
    ):
        model = quick(**made).fit(X, y, **fitted)
        with pytest.raises(ValueError, match=f"fitted with {name}"):
            model.predict_interval(X, method="jackknife+")


@pytest.mark.parametrize("way", WAYS)
def test_through_a_file_and_an_update(way, tmp_path):
    X, y = small(N)
    made, fitted = WAYS[way]
    model = quick(**made).fit(X, y, **fitted)
    assert clone(model).get_params()["buffer"] == made.get("buffer")
    again = through_file(model, tmp_path)
    assert again.get_params()["buffer"] == made.get("buffer")
    assert again.leave_out == made.get("leave_out", "one")
    np.testing.assert_array_equal(again.loo_.mean, model.loo_.mean)
    assert str(again.summary_) == str(model.summary_)
    times = {"times": [99.0, 99.0]} if "times" in fitted else {}
    for one in (model, again):
        if times:
            with pytest.raises(ValueError, match="pass times= here too"):
                one.update(X[:2] + 0.1, y[:2])
            with pytest.raises(ValueError, match="of the kind date; those of the fit are of the kind number"):
                one.update(X[:2] + 0.1, y[:2], times=["2024-01-01", "2024-01-02"])
        else:
            with pytest.raises(ValueError, match="fitted without leave_out='past'"):
                one.update(X[:2] + 0.1, y[:2], times=[1, 2])
        one.update(X[:2] + 0.1, y[:2], **times)
    np.testing.assert_array_equal(again.loo_.mean, model.loo_.mean)
    assert len(model.loo_.mean) == N + 2
    changes = {"rows.times": np.zeros(3), "rows.buffer": np.ones((2, 9))}
    for name, forged in changes.items():
        with pytest.raises(ModelFileError, match=name):
            load_forged(model, tmp_path, lambda sections, arrays, n=name, f=forged: arrays.update({n: f}))


LABELS = {
    "numbers": GROUPS,
    "text": np.array([f"g{one}" for one in GROUPS]),
    "objects": np.array([f"g{one}" for one in GROUPS], dtype=object),
    "dates": np.datetime64("2024-01-01") + GROUPS,
}


@pytest.mark.parametrize("kind", LABELS)
def test_rows_that_are_appended_join_the_group_of_their_label(kind, tmp_path):
    X, y = small(N)
    labels = LABELS[kind]
    start = quick(max_steps=3).fit(X[:50], y[:50], groups=labels[:50])
    wanted = unseen(X, {}, {"groups": GROUPS})
    for model in (through_file(start, tmp_path), start):
        model.update(X[50:60], y[50:60], groups=labels[50:60])
        model = through_file(model, tmp_path).update(X[60:], y[60:], groups=labels[60:])
        groups = model._fit.predictor.rows.groups[model._places]
        np.testing.assert_array_equal((groups[:, None] == groups) | np.eye(N, dtype=bool), wanted)
    before = start.loo_.mean[:60].copy()
    start.update(X[:1], [50.0], groups=labels[:1])
    changed = np.abs(start.loo_.mean[:60] - before) > 1e-6
    assert not changed[GROUPS[:60] == GROUPS[0]].any()  # these do not see the new row
    assert changed[GROUPS[:60] != GROUPS[0]].any()


def test_labels_that_are_new_begin_groups_and_numbers_are_the_same_of_any_type():
    X, y = small(40)
    model = quick(max_steps=3).fit(X, y, groups=np.arange(40) // 4)
    model.update(X[:3] + 0.1, y[:3])  # alone
    model.update(X[:4] + 0.2, y[:4], groups=[9.0, 77.0, 77.0, 78.0])
    model.update(X[:1] + 0.3, y[:1], groups=[77])
    rows = model._fit.predictor.rows
    groups = rows.groups[model._places][40:].tolist()
    assert groups[3] == rows.groups[model._places][39]
    assert groups[4] == groups[5] == groups[7]
    assert len({*groups}) == 6
    counts = np.floor(np.abs(y) * 5)
    other = quick_counts(max_steps=3).fit(X, counts, groups=np.arange(40) // 4)
    other.partial_fit(X[:2] + 0.1, counts[:2], groups=[0, 0])
    assert len(np.unique(other._fit.predictor.rows.groups)) == 10
    own = quick_classifier(max_steps=3).fit(X, y > 0, groups=np.arange(40) // 4)
    own.partial_fit(X[:2] + 0.1, y[:2] > 0, groups=[0, 50])
    assert len(np.unique(own._fit.predictor.rows.groups)) == 11


def test_groups_of_an_update_that_do_not_fit_are_named(tmp_path):
    X, y = small(40)
    more = X[:2] + 0.1, y[:2]
    for wrong, said in (
        (["a", "b"], "groups are of the kind text; those of the fit are of the kind number"),
        ([1, 2, 3], r"groups has shape \(3,\): expected \(2,\)"),
        ([1, np.nan], "groups has 1 missing labels, the first in row 1"),
        ([None, 1], "groups has 1 missing labels, the first in row 0"),
    ):
        model = quick(max_steps=3).fit(X, y, groups=np.arange(40) // 4)
        with pytest.raises(ValueError, match=said):
            model.update(*more, groups=wrong)
        assert model.n_rows_ == 40
    with pytest.raises(ValueError, match="fitted without: leave them out, or fit again with groups="):
        quick(max_steps=3).fit(X, y).update(*more, groups=[1, 2])
    twice = np.concatenate([X, X + 1e-9]), np.concatenate([y, y])
    with pytest.raises(ValueError, match="knows no labels of its groups: it found near copies by itself"):
        quick(max_steps=3).fit(*twice, groups="auto").update(*more, groups=[1, 2])
    forged = {"target.groups": np.zeros((2, 3), dtype=np.int64)}
    with pytest.raises(ModelFileError, match="does not tell the labels of its groups"):
        load_forged(model, tmp_path, lambda sections, arrays: arrays.update(forged))


def test_a_file_does_not_tell_what_groups_are_called(tmp_path):
    X, y = small(40)
    model = quick(max_steps=3).fit(X, y, groups=[f"Mrs Smith {i // 4}" for i in range(40)])
    model.save(tmp_path / "model")
    assert b"Smith" not in (tmp_path / "model").read_bytes()


def test_importances_and_weights_follow():
    X, y = small(80)
    group = np.arange(80) // 8
    model = quick(k=20, leave_out="past").fit(X, y, sample_weight=np.arange(80) % 3, groups=group, times=np.arange(80))
    assert model.feature_importances_.shape == (3,)
    assert len(model.loo_.mean) == 53
    rows = model._fit.predictor.rows
    assert rows.times.shape == rows.groups.shape == (53,)


def test_another_time_is_another_fit(tmp_path, monkeypatch):
    from estimator_data import crash_after_checkpoint

    X, y = small(120)
    path, made = tmp_path / "checkpoint", {"leave_out": "past", "max_steps": 40, "refresh_every": 10, "k": 8}
    crash_after_checkpoint(monkeypatch, lambda: quick(**made, checkpoint=path).fit(X, y, times=np.arange(120)))
    for more, times in (({}, np.arange(120)[::-1]), ({"buffer": 0.1}, np.arange(120))):
        with pytest.raises(ValueError, match="belongs to a fit with other data or settings"):
            quick(**made, **more, checkpoint=path).fit(X, y, times=times)


# --- command line ---------------------------------------------------------------------------------------------------


def _table(path, n=60):
    X, y = small(n)
    day = [(datetime.date(2024, 1, 1) + datetime.timedelta(i)).strftime("%d.%m.%Y") for i in range(n)]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["a", "b", "day", "y"], *zip(X[:, 0], X[:, 1], day, y, strict=True)])
    return X[:, :2], y


@pytest.mark.parametrize("drop", [False, True])
def test_the_command_line(tmp_path, capsys, drop):
    X, y = _table(tmp_path / "t.csv")
    options = ["--leave-out", "past", "--time", "day", "--buffer", "a:0.2,b:0.3", "--k", "12", "--dates", "dmy"]
    options += ["--drop", "day"] if drop else []
    out = str(tmp_path / "m.nearfield")
    assert main(["fit", str(tmp_path / "t.csv"), "--target", "y", "--out", out, *options]) == 0
    said = capsys.readouterr().out
    assert (
        "Rows are left out with all rows that are not earlier, of 60 times, and with all rows within a buffer" in said
    )
    model = GPRegressor.load(out)
    assert (model.leave_out, model.buffer) == ("past", {"a": 0.2, "b": 0.3})
    assert ("day" in model.feature_relevance_) != drop
    rows = model._fit.predictor.rows
    assert (np.diff(rows.times) == 1).all()  # days
    if drop:
        made = GPRegressor(random_state=0, verbose=False, k=12, leave_out="past", buffer={0: 0.2, 1: 0.3})
        np.testing.assert_array_equal(made.fit(X, y, times=np.arange(60)).loo_.mean, model.loo_.mean)


def test_mistakes_of_the_command_line(tmp_path, capsys):
    _table(tmp_path / "t.csv")
    start = ["fit", str(tmp_path / "t.csv"), "--target", "y", "--out", str(tmp_path / "m.nearfield")]
    for options, said in (
        (["--leave-out", "past"], "--leave-out past needs --time"),
        (["--time", "day"], "--time goes with --leave-out past"),
        (["--leave-out", "future"], "--leave-out is 'future'"),
        (["--leave-out", "past", "--time", "y"], "--time is 'y', which is a target"),
        (["--leave-out", "past", "--time", "hour"], "The column of --time is not in the table: 'hour'"),
        (["--buffer", "far"], "--buffer is 'far'"),
        (["--buffer", "-1"], "buffer is -1.0: expected a distance above zero"),
        (["--buffer", "c:1"], "buffer names a column 'c' that is not there"),
    ):
        assert main([*start, *options]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "m.nearfield").exists()


def test_groups_of_labels_on_the_command_line(tmp_path):
    X, y = labelled(60)
    with open(tmp_path / "t.csv", "w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["a", "b", "who", "y"],
                *((*x[:2], f"p{i // 6}", f"c{c}") for i, (x, c) in enumerate(zip(X, y, strict=True))),
            ]
        )
    out = str(tmp_path / "m.nearfield")
    assert main(["fit", str(tmp_path / "t.csv"), "--target", "y", "--out", out, "--groups", "who", "--quiet"]) == 0
    model = GPClassifier.load(out)
    assert (model._fit.predictor.rows.groups == np.arange(60) // 6).all()
    model.update(X[:2], np.array(["c0", "c1"]), groups=["p3", "p10"])
    assert model._fit.predictor.rows.groups[-2:].tolist() == [3, 10]
