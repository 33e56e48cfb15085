"""Fits on a Dask cluster have the bits of fits in memory, survive the death of workers, and fail in time, clearly."""

from __future__ import annotations

import os
import pickle
import signal
import warnings

import numpy as np
import pytest
from sklearn.base import clone

import nearfield
import nearfield.scaling
from nearfield.column_values import TableError
from nearfield.neighbours import NeighbourTable, neighbour_table
from nearfield.neighbours.merging import merge_into
from nearfield.warps import Metric

distributed = pytest.importorskip("distributed", reason="needs dask and distributed: pip install 'nearfield[dask]'")
pytest.importorskip("dask.dataframe", reason="needs dask.dataframe: pip install 'nearfield[dask]'")

import dask  # noqa: E402
import dask.array as da  # noqa: E402
import dask.dataframe as dd  # noqa: E402
import pandas as pd  # noqa: E402

from nearfield import dask as on_dask  # noqa: E402
from nearfield.dask import ClusterError, _boxes, _cluster, _predicting, _table  # noqa: E402
from nearfield.dask._boxes import RemoteIndex, RemoteInputs, cut  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def cluster():
    with (
        dask.config.set({"distributed.admin.tick.limit": "1h"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        ) as own,
    ):
        yield own


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as own:
        own.wait_for_workers(2, timeout=60)
        yield own


@pytest.fixture
def scattered(monkeypatch):
    """Nothing is so little that the trainer keeps it, and predictions come in many blocks."""
    monkeypatch.setattr(_boxes, "FEW", 0)
    monkeypatch.setattr(_boxes, "_AT_ONCE", 300)
    monkeypatch.setattr(_predicting, "_MOST_ROWS", 32)


def table(n=1200, d=3, seed=0, copies=True):
    rng = np.random.default_rng(seed)
    X = np.exp(rng.standard_normal((n, d)))
    if copies:
        X[: n // 9] = X[n // 2 : n // 2 + n // 9]
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(n)


def arrays(X, y, parts=5):
    rows = -(-len(X) // parts)
    return da.from_array(X, chunks=(rows, X.shape[1])), da.from_array(y, chunks=rows)


def same(found, expected):
    found, expected = (part if isinstance(part, tuple) else (part,) for part in (found, expected))
    for a, b in zip(found, expected, strict=True):
        a = a.compute()
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


# --- the same bits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "dtype", "parts", "boxes"),
    [
        ({}, np.float64, 8, 4),
        ({"likelihood": "student_t"}, np.float32, 64, 1),
        ({"mean": "linear", "continuous": False}, np.float64, 3, 8),
    ],
    ids=["gaussian", "student_t", "linear"],
)
def test_regression_has_the_bits_of_one_in_memory(
    client, scattered, brief_training, monkeypatch, arguments, dtype, parts, boxes
):
    monkeypatch.setattr(_table, "BOXES_A_WORKER", boxes)
    X, y = table(1200 if parts == 8 else 600)
    X = X.astype(dtype)
    local = nearfield.GPRegressor(random_state=0, k=16, **arguments).fit(X, y)
    model = on_dask.GPRegressor(random_state=0, k=16, **arguments).fit(*arrays(X, y, parts))
    assert isinstance(model._trainer._fit.predictor.rows.inputs, RemoteInputs)
    assert model.client_ is client
    np.testing.assert_array_equal(model.length_scales_, local.length_scales_)
    new = table(100, seed=1)[0]
    remote = da.from_array(new, chunks=(37, 3))
    same(model.predict(remote, return_std=True), local.predict(new, return_std=True))
    same(model.predict_interval(remote, coverage=0.8), local.predict_interval(new, coverage=0.8))
    same(model.predict_quantiles(remote, [0.1, 0.9]), local.predict_quantiles(new, [0.1, 0.9]))
    same(model.support(remote), local.support(new))
    assert model.predict(remote).chunks == ((37, 37, 26),)
    np.testing.assert_array_equal(model.to_local().predict(new), local.predict(new))
    if parts == 8:
        np.testing.assert_array_equal(model.loo_.mean, local.loo_.mean)


def test_all_rows_of_small_tables_are_neighbours(client, brief_training):
    X, y = table(150)
    local = nearfield.GPRegressor(random_state=0).fit(X, y)
    model = on_dask.GPRegressor(random_state=0).fit(*arrays(X, y))
    assert model.k_ == local.k_ == 149
    same(model.predict(da.from_array(X, chunks=(40, 3))), local.predict(X))


def test_classes_of_frames_with_gaps_flags_and_dates(client, scattered, brief_training):
    X, y = table(600)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.loc[::7, "b"] = np.nan
    frame["flag"], frame["day"] = X[:, 0] > 1, pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(600) % 50, "D")
    labels = pd.Series(np.where(y > np.median(y), "high", "low"), name="level")
    local = nearfield.GPClassifier(random_state=0, k=16).fit(frame, labels)
    remote = dd.from_pandas(frame, npartitions=4)
    with_empty = dd.concat(
        [remote.partitions[[0, 1]], remote.partitions[[2]].query("a < 0"), remote.partitions[[2, 3]]]
    )
    model = on_dask.GPClassifier(random_state=0, k=16).fit(with_empty, dd.from_pandas(labels, npartitions=4))
    np.testing.assert_array_equal(model.feature_names_in_, local.feature_names_in_)
    same(model.predict_proba(with_empty), local.predict_proba(frame))
    same(model.predict(with_empty), local.predict(frame))
    with pytest.raises(ValueError, match="those of the fit"):
        model.predict(remote[["b", "a", "c", "flag", "day"]])


def test_counts_with_exposure_and_weights(client, scattered, brief_training):
    X, _ = table(400)
    rng = np.random.default_rng(5)
    exposure, weight = rng.uniform(1, 3, 400), rng.integers(0, 3, 400).astype(float)
    y = rng.poisson(exposure * X[:, 0].clip(0, 5)).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        local = nearfield.GPCountRegressor(random_state=0, k=16).fit(X, y, weight, exposure=exposure)
        model = on_dask.GPCountRegressor(random_state=0, k=16).fit(
            *arrays(X, y), da.from_array(weight, chunks=99), exposure=exposure
        )
    remote = arrays(X, y)[0]
    same(model.predict(remote, exposure=exposure), local.predict(X, exposure=exposure))
    same(model.predict(remote, exposure=2.0, return_std=True), local.predict(X, exposure=2.0, return_std=True))
    with pytest.raises(ValueError, match="exposure"):
        model.predict(remote)


def test_wild_values_are_tamed_as_in_memory(client, scattered, brief_training):
    X, y = table(500)
    X[3, 1] = 1e15
    with pytest.warns(nearfield.WildValuesWarning) as told:
        local = nearfield.GPRegressor(random_state=0, k=16).fit(X, y)
    with pytest.warns(nearfield.WildValuesWarning) as told_too:
        model = on_dask.GPRegressor(random_state=0, k=16).fit(*arrays(X, y))
    assert str(told[0].message) == str(told_too[0].message)
    same(model.predict(arrays(X, y)[0]), local.predict(X))


def test_rows_far_beyond_the_others_are_found_in_every_box(client, scattered):
    """Searches against brute force, with ties: a grid of whole numbers in which most distances occur often."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 5, (700, 3)).astype(float)
    rows[:5] *= 40
    where = _cluster.Cluster.of(client)
    held = _table.sent(where, rows).held(nearfield.scaling.Scaling(np.zeros(3), np.ones(3)))
    assert isinstance(held, RemoteInputs)
    np.testing.assert_array_equal(np.array(held), rows)
    queries, which = rng.uniform(-3, 9, (50, 3)), np.arange(700)
    for points, exclude in ((queries, None), (rows, which)):
        found = RemoteIndex(held, Metric.of(np.ones(3))).query(points, 30, exclude)
        expected = neighbour_table(rows, points, 30, exclude)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.sqdist, expected.sqdist)


def test_tables_of_neighbours_are_merged():
    rng = np.random.default_rng(0)
    distance, ids = rng.integers(0, 4, (20, 12)).astype(float), rng.permuted(np.tile(np.arange(12), (20, 1)), axis=1)
    distance[rng.random((20, 12)) < 0.3] = np.inf
    ids[np.isinf(distance)] = -1

    def ordered(part):
        own = [sorted((s, i) for s, i in zip(*pair, strict=True) if i >= 0)[:6] for pair in zip(*part, strict=True)]
        own = [row + [(np.inf, -1)] * (6 - len(row)) for row in own]
        return NeighbourTable(
            np.array([[i for _, i in row] for row in own]), np.array([[s for s, _ in r] for r in own])
        )

    first, second = ordered((distance[:, :6], ids[:, :6])), ordered((distance[:, 6:], ids[:, 6:]))
    expected = ordered((distance, ids))
    merge_into(first, np.arange(20), second)
    np.testing.assert_array_equal(first.ids, expected.ids)
    np.testing.assert_array_equal(first.sqdist, expected.sqdist)


def test_boxes_have_about_as_many_rows(client):
    sample = table(4000, copies=False)[0]
    sizes = np.bincount(cut(sample, 5).boxes_of(sample), minlength=8)
    assert sizes.min() > 400
    assert cut(sample, 1).boxes_of(sample).max() == 0


# --- workers that die ------------------------------------------------------------------------------------------------


def kill_one(client):
    address, pid = next(iter(client.run(os.getpid).items()))
    os.kill(pid, signal.SIGKILL)
    return address


def test_a_fit_and_predictions_survive_workers_that_die(client, scattered, brief_training, monkeypatch):
    X, y = table()
    local = nearfield.GPRegressor(random_state=0, k=16).fit(X, y)
    query, asked, killed = RemoteIndex.query, [], []

    def killing(self, *given):
        asked.append(1)
        if len(asked) == 2:
            killed.append(kill_one(client))
        return query(self, *given)

    monkeypatch.setattr(RemoteIndex, "query", killing)
    model = on_dask.GPRegressor(random_state=0, k=16).fit(*arrays(X, y))
    assert killed
    new = table(100, seed=1)[0]
    remote = da.from_array(new, chunks=(37, 3))
    lazy = model.predict(remote)
    kill_one(client)
    same(lazy, local.predict(new))


def test_no_workers_are_an_error_and_no_hang(brief_training, monkeypatch):
    monkeypatch.setattr(_cluster, "LONELY", 1.0)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None, host="127.0.0.1") as empty,
        distributed.Client(empty, set_as_default=False) as own,
    ):
        assert _cluster.Cluster.of(own).workers() == {}
        with pytest.raises(ClusterError, match="no workers for"):
            _cluster.Cluster.of(own).require_workers(0.5)
        future = own.submit(int, 1)
        monkeypatch.setattr(_cluster, "_LOOK", 0.2)
        with pytest.raises(ClusterError, match="no workers for 1 seconds"):
            _cluster.Cluster.of(own).result(future)
        paused = {"tcp://127.0.0.1:1": {"status": "paused"}}
        monkeypatch.setattr(_cluster.Cluster, "workers", lambda self: paused)
        with pytest.raises(ClusterError, match=r"all 1 workers .* have been paused for 1 seconds"):
            _cluster.Cluster.of(own).result(future)


# --- partitions as they come -----------------------------------------------------------------------------------------


def frame_of(*parts):
    """A data frame whose partitions are these, whatever its own description says."""
    meta = parts[0].iloc[:0]
    return dd.from_map(lambda part: part, list(parts), meta=meta, enforce_metadata=False)


def made_of(*parts):
    """An array whose partitions are these, though it says that all are like the first."""
    shape = parts[0].shape
    return da.concatenate([da.from_delayed(dask.delayed(part), shape, dtype=parts[0].dtype) for part in parts])


def test_empty_partitions_and_unknown_lengths_are_no_matter(client, scattered, brief_training):
    """Chunks of NaN rows, as of data frames that became arrays, some of them without any; divisions are not known."""
    X, y = table(400)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    local = nearfield.GPRegressor(random_state=0, k=16).fit(X, y)
    unknown = frame_of(frame[:0], frame[:150], frame[150:150], frame[150:]).to_dask_array()
    assert np.isnan(unknown.shape[0])
    targets = da.concatenate([da.from_array(y[:99]), da.from_array(y[:0]), da.from_array(y[99:])])
    model = on_dask.GPRegressor(random_state=0, k=16).fit(unknown, targets)
    same(model.predict(unknown, return_std=True), local.predict(X, return_std=True))
    known = da.concatenate([da.from_array(X[:0]), da.from_array(X[:150]), da.from_array(X[150:])])
    split = known.rechunk({1: 2})
    same(on_dask.GPRegressor(random_state=0, k=16).fit(split, y).predict(known), local.predict(X))
    same(model.predict(known[:0]), local.predict(X)[:0])
    with pytest.raises(ValueError, match="noise_variance is in memory, and X has partitions of unknown length"):
        model.predict(unknown, noise_variance=np.ones(400))
    with pytest.raises(ValueError, match="noise_variance has 2 partitions, and X has 4"):
        model.predict(unknown, noise_variance=da.ones(400, chunks=200))


# --- bad input -------------------------------------------------------------------------------------------------------


GOOD = pd.DataFrame({"a": np.arange(30.0), "b": np.arange(30.0) ** 2})


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (frame_of(GOOD, GOOD.rename(columns={"b": "other"})), "partition 1 of X lacks the column 'b'"),
        (frame_of(GOOD, GOOD.astype({"b": bool})), "partition 1 of X has flag values in column 'b'"),
        (frame_of(GOOD.astype({"b": str}), GOOD.astype({"b": str})), "column 'b' of X holds text"),
        (
            frame_of(GOOD, GOOD.replace(4.0, np.inf)),
            "partition 1 of X: .*column 'a' has 1 infinite",
        ),
        (frame_of(GOOD.iloc[:0], GOOD.iloc[:0]), "no rows in any"),
        (da.ones((60, 2), chunks=(20, 2), dtype=bool), "type bool"),
        (made_of(np.ones((30, 2)), np.ones((30, 3))), "partition 1 of X has the columns .*; others have"),
        (made_of(np.ones((30, 2)), np.ones((30, 1))), "partition 1 of X lacks the column"),
        (made_of(np.ones((30, 2)), np.ones((30, 2), np.float32)), "partition 1 of X is of type float32"),
        (made_of(np.ones((30, 2)), np.ones(30)), "a partition of X has shape .30,."),
        (da.ones((60, 2, 2)), "3 dimensions"),
        (dd.from_pandas(GOOD["a"], npartitions=2), "a Dask series of 1 dimensions"),
        (da.ones((60, 0)), "X has no columns"),
        (da.concatenate([da.ones((30, 2)), da.ones((29, 2))]), "y has 60 rows, and X has 59"),
    ],
    ids=[
        "columns",
        "types",
        "text",
        "infinite",
        "empty",
        "bool",
        "more columns",
        "fewer columns",
        "precision",
        "shape",
        "dimensions",
        "series",
        "no columns",
        "lengths",
    ],
)
def test_bad_partitions_are_told_before_training(client, X, message):
    with pytest.raises((TableError, ValueError), match=message):
        on_dask.GPRegressor().fit(X, da.ones(60))
    assert nothing_left(client)


def nothing_left(client):
    """Whether no task has a result or waits for one any more, soon."""
    import time

    for _ in range(50):
        held = client.run_on_scheduler(
            lambda dask_scheduler: [key for key, task in dask_scheduler.tasks.items() if task.state != "released"]
        )
        if not held:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    ("arguments", "beside"),
    [
        ({"coordinates": [0, 1]}, {}),
        ({"buffer": 1.0}, {}),
        ({}, {"groups": "auto"}),
        ({"leave_out": "past"}, {"times": 0}),
    ],
    ids=["coordinates", "buffer", "groups", "times"],
)
def test_what_is_not_supported_is_named(client, arguments, beside):
    name = next(iter({**arguments, **beside}))
    with pytest.raises(ValueError, match=f"{name}=.*not supported with Dask"):
        on_dask.GPRegressor(**arguments).fit(*arrays(*table(50)), **beside)


def test_data_in_memory_and_targets_that_are_missing_are_refused(client):
    X, y = table(100)
    with pytest.raises(TypeError, match="Dask array or data frame is expected"):
        on_dask.GPRegressor().fit(X, y)
    with pytest.raises(ValueError, match="y is None"):
        on_dask.GPRegressor().fit(arrays(X, y)[0], None)


@pytest.mark.parametrize("kind", ["array", "array of unknown length", "frame"])
def test_workers_that_are_too_small_are_told_of_before_columns_are_read(client, monkeypatch, kind):
    X, y = table(100)
    workers, loaded, limit = _cluster.Cluster.workers, [], {"memory_limit": _table._ITSELF / _table._MEMORY + 1000}
    monkeypatch.setattr(
        _cluster.Cluster, "workers", lambda self: {name: {**one, **limit} for name, one in workers(self).items()}
    )
    compute = _cluster.Cluster.compute
    monkeypatch.setattr(_cluster.Cluster, "compute", lambda self, parts: loaded.append(parts) or compute(self, parts))
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    given = {"array": arrays(X, y)[0], "frame": frame, "array of unknown length": frame.to_dask_array()}[kind]
    with pytest.raises(ClusterError, match="MiB of memory, but its boxes of 100 rows of 3 columns"):
        on_dask.GPRegressor().fit(given, da.from_array(y))
    assert len(loaded) == (kind != "array")  # partitions alone, whose rows have to be counted
    assert nothing_left(client)
    limit["memory_limit"], loaded[:] = 1000, []
    with pytest.raises(ClusterError, match="not enough for 300 MiB of the process itself"):
        on_dask.GPRegressor().fit(given, da.from_array(y))
    assert not loaded


def test_nothing_is_left_where_a_target_cannot_be_computed(client):
    X, y = table(100)

    def failing():
        raise ZeroDivisionError("no such target")

    target = da.from_delayed(dask.delayed(failing)(), (100,), dtype=float)
    with pytest.raises(ZeroDivisionError, match="no such target"):
        on_dask.GPRegressor().fit(arrays(X, y)[0], target)
    assert nothing_left(client)


def test_without_a_client_it_is_told_how_to_make_one():
    with pytest.raises(ClusterError, match="there is no Dask client"):
        on_dask.GPRegressor().fit(*arrays(*table(50)))


# --- the estimator ---------------------------------------------------------------------------------------------------


def test_parameters_are_those_of_the_ordinary_estimator_and_the_client(client):
    model = on_dask.GPRegressor(k=7, client=client)
    assert model.get_params() == {**nearfield.GPRegressor(k=7).get_params(), "client": client}
    assert clone(model).client is client
    assert clone(model).k == 7
    with pytest.raises(TypeError, match="unknown"):
        on_dask.GPRegressor(unknown=1)
    with pytest.raises(AttributeError):
        _ = model.k_


def test_the_client_is_never_pickled(client, scattered, brief_training):
    X, y = table(300)
    model = on_dask.GPRegressor(random_state=0, k=16, client=client).fit(*arrays(X, y))
    again = pickle.loads(pickle.dumps(model))
    assert again.client is None
    expected = model.predict(arrays(X, y)[0]).compute()
    np.testing.assert_array_equal(again.to_local().predict(X), expected)
    same(again.predict(arrays(X, y)[0]), expected)


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def csv(tmp_path):
    X, y = table(300)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(colour=np.where(X[:, 0] > 1, "red", "blue"), y=y)
    frame.to_csv(tmp_path / "train.csv", index=False)
    return tmp_path / "train.csv"


def test_the_command_line_fits_on_a_cluster(client, brief_training, csv, tmp_path, capsys):
    from nearfield.cli import main

    fit = ["fit", str(csv), "--target", "y", "--k", "16", "--quiet"]
    assert main([*fit, "--out", str(tmp_path / "local.nearfield")]) == 0
    address = client.scheduler.address
    assert main([*fit, "--out", str(tmp_path / "remote.nearfield"), "--dask", address]) == 0
    models = [nearfield.GPRegressor.load(tmp_path / f"{name}.nearfield") for name in ("local", "remote")]
    frame = pd.read_csv(csv).drop(columns="y")
    np.testing.assert_array_equal(models[0].predict(frame), models[1].predict(frame))
    assert nothing_left(client)


def test_workers_read_a_folder_of_parquet_files(client, brief_training, tmp_path, capsys, monkeypatch):
    from nearfield.cli import main

    X, y = table(400)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=np.where(np.arange(400) % 50 == 0, np.nan, y))
    (tmp_path / "parts").mkdir()
    for number, rows in enumerate((frame[:150], frame[150:150], frame[150:])):
        rows.to_parquet(tmp_path / "parts" / f"{number}.parquet")
    fit = ["fit", str(tmp_path / "parts"), "--target", "y", "--k", "16"]
    assert main([*fit, "--out", str(tmp_path / "local.nearfield"), "--quiet"]) == 0
    remote = [*fit, "--out", str(tmp_path / "remote.nearfield"), "--dask", client.scheduler.address]
    assert main(remote) == 0
    assert "392 rows, 3 columns as 3 features" in capsys.readouterr().out
    models = [nearfield.GPRegressor.load(tmp_path / f"{name}.nearfield") for name in ("local", "remote")]
    np.testing.assert_array_equal(models[0].predict(frame[["a", "b", "c"]]), models[1].predict(frame[["a", "b", "c"]]))
    assert nothing_left(client)
    assert main([*remote, "--cache", str(tmp_path / "cache")]) == 2
    assert "--cache is for fits of this machine" in capsys.readouterr().err
    monkeypatch.setattr(distributed.Client, "run", lambda self, task, path: {"tcp://1": True, "tcp://2": False})
    assert main(remote) == 2
    assert "1 of 2 workers, such as tcp://2, do not have" in capsys.readouterr().err


def test_the_command_line_names_a_scheduler_that_is_not_there(monkeypatch, csv, tmp_path, capsys):
    from nearfield import cli_cluster
    from nearfield.cli import main

    monkeypatch.setattr(cli_cluster, "_SECONDS", 1)
    arguments = ["fit", str(csv), "--target", "y", "--out", str(tmp_path / "m.nearfield")]
    assert main([*arguments, "--dask", "tcp://127.0.0.1:1"]) == 2
    assert "there is no Dask scheduler at 'tcp://127.0.0.1:1'" in capsys.readouterr().err
