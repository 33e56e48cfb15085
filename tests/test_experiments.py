"""The runs of the experiments: files, resuming, limits of time, failures, plans."""

from __future__ import annotations

import json
import os
import threading
import time

import experiment_tasks as fakes
import numpy as np
import pytest

from experiments import data, runner, store
from experiments.process import Stopped, run_limited


def run(tasks, out, do, **more):
    lines = []
    return runner.run(tasks, out, say=lines.append, do=do, **more), lines


def test_result_file_says_what_was_run_and_what_came_out(tmp_path):
    task = fakes.task(split=2, quick=True)
    ended, lines = run([task], tmp_path, fakes.result)
    assert ended == {"there already": 0, "done": 1}
    assert "loo-k: done" in lines[0]
    result = json.loads((tmp_path / "univariate" / "loo-k" / "bike-2.json").read_text())
    assert result["metrics"] == {"nll": 2.0, "rmse": 0.5}
    assert result["rows"]["train"] == 15
    assert (result["status"], result["quick"], result["split"], result["data"]) == ("done", True, 2, "bike")
    assert result["versions"]["numpy"] == np.__version__
    assert result["elapsed"] > 0


def test_a_second_run_does_only_what_is_missing(tmp_path):
    first, second = fakes.task(split=0), fakes.task(split=1)
    run([first], tmp_path, fakes.result)
    before = store.path_of(tmp_path, first).stat().st_mtime_ns
    ended, _ = run([first, second], tmp_path, fakes.result, jobs=2)
    assert ended == {"there already": 1, "done": 1}
    assert store.path_of(tmp_path, first).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("do", "status", "message"),
    [
        (fakes.failing, "failed", "ValueError: no such luck"),
        (fakes.too_large, "too large", "TooLarge: more than 10 rows"),
        (fakes.crashing, "failed", "the process ended by itself, exit code 3"),
    ],
)
def test_failures_are_recorded_and_retried_only_when_asked(tmp_path, do, status, message):
    task = fakes.task()
    run([task], tmp_path, do)
    result = store.read(store.path_of(tmp_path, task))
    assert (result["status"], result["message"]) == (status, message)
    assert run([task], tmp_path, fakes.result)[0] == {"there already": 1}
    assert run([task], tmp_path, fakes.result, retry=True)[0] == {"there already": 0, "done": 1}


def test_a_fit_that_notices_its_deadline_did_not_finish():
    assert run_limited(fakes.too_late, fakes.task(), 60.0) == {"status": "did not finish", "limit": 60.0}


def test_a_fit_is_told_to_end_before_its_process_is_ended(tmp_path):
    task = fakes.task(limit=60.0)
    before = time.monotonic()
    run([task], tmp_path, fakes.told)
    after = time.monotonic()
    deadline = store.read(store.path_of(tmp_path, task))["deadline"]
    assert before < deadline - 60.0 + runner._TO_END < after
    assert fakes.task(limit=60.0, deadline=7.0).ends() == 7.0
    assert time.monotonic() < task.ends() - 59.0


def test_a_server_that_does_not_answer_is_a_failure(tmp_path):
    run([fakes.task()], tmp_path, fakes.no_answer)
    result = store.read(store.path_of(tmp_path, fakes.task()))
    assert (result["status"], result["message"]) == ("failed", "TimeoutError: a server did not answer")


def test_a_run_that_is_stopped_leaves_no_file_and_no_process(tmp_path):
    numbers, stop = tmp_path / "numbers", threading.Event()
    task = fakes.task(data=str(numbers))

    def stop_when_it_runs():
        while not numbers.exists() or not numbers.read_text().count(" "):
            time.sleep(0.05)
        stop.set()

    threading.Thread(target=stop_when_it_runs, daemon=True).start()
    with pytest.raises(Stopped):
        runner.perform(task, tmp_path / "out", stop, fakes.endless)
    assert not (tmp_path / "out").exists()
    assert not _lives(int(numbers.read_text().split()[0]))


def test_later_splits_are_not_tried_where_one_did_not_finish_with_as_much_time(tmp_path):
    run([fakes.task()], tmp_path, fakes.too_late)
    later, longer = fakes.task(split=1), fakes.task(split=2, limit=61.0)
    elsewhere = fakes.task(data="pol", split=1)
    assert run([later, longer, elsewhere], tmp_path, fakes.result)[0]["done"] == 2
    result = store.read(store.path_of(tmp_path, later))
    assert (result["status"], result["message"]) == ("did not finish", "not tried: split 0 did not finish")
    assert store.read(store.path_of(tmp_path, longer))["status"] == "done"


def test_a_fit_beyond_its_limit_is_ended_with_all_that_it_started(tmp_path):
    numbers = tmp_path / "numbers"
    task = fakes.task(data=str(numbers), limit=6.0)
    began = time.monotonic()
    assert run_limited(fakes.endless, task, task.limit) == {"status": "did not finish", "limit": 6.0}
    assert time.monotonic() - began < 60
    pid, child = (int(number) for number in numbers.read_text().split())
    assert not _lives(pid)
    for _ in range(100):
        if not _lives(child):
            break
        time.sleep(0.05)
    assert not _lives(child)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:  # ended, but its parent has not asked how
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


def test_quick_and_full_results_are_kept_apart(tmp_path):
    run([fakes.task(quick=True)], tmp_path, fakes.result)
    with pytest.raises(store.MixedResults, match="is of a quick run and this is a full run: pass another folder"):
        run([fakes.task(quick=False)], tmp_path, fakes.result)


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a" / "result.json"
    store.write(path, {"nll": np.float64(1.5), "ks": np.arange(3), "rmse": float("nan")})
    assert store.read(path) == {"nll": 1.5, "ks": [0, 1, 2], "rmse": None}
    with pytest.raises(TypeError):
        store.write(path, {"what": object()})
    assert store.read(path)["nll"] == 1.5
    assert [p.name for p in path.parent.iterdir()] == ["result.json"]


@pytest.fixture
def two_tables(tmp_path, monkeypatch):
    """A data folder with one regression and one multi-class table."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    np.savez(tmp_path / "bike.npz", X=X, y=X[:, 0])
    np.savez(tmp_path / "covtype.npz", X=X, y=rng.integers(7, size=200).astype(np.int16))
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    return X


def test_plan_leaves_out_what_has_no_data(two_tables):
    tasks, left_out = runner.plan(runner.Wish(["univariate"], methods=["loo-k", "svgp"], splits=2))
    assert [(t.entry.name, t.data, t.split) for t in tasks] == [
        ("loo-k", "bike", 0), ("svgp", "bike", 0), ("loo-k", "bike", 1), ("svgp", "bike", 1),
    ]  # fmt: skip
    assert "univariate: no data for pol" in left_out


def test_plan_of_all_gives_each_experiment_its_methods(two_tables):
    tasks, _ = runner.plan(runner.Wish(list(runner.EXPERIMENTS), quick=True))
    pairs = {(t.experiment, t.data) for t in tasks}
    assert {
        ("univariate", "bike"),
        ("degenerate", "bike-twins"),
        ("binary", "covtype_fir"),
        ("curves", "bike"),
    } <= pairs
    assert {("misspecification", "cubic-4"), ("runtime", "rows-1000"), ("multiclass", "covtype")} <= pairs
    assert all(t.quick and t.split == 0 and t.limit == runner.QUICK_LIMIT for t in tasks)
    assert len({store.path_of(store.Path(), t) for t in tasks}) == len(tasks)


def test_several_experiments_take_of_a_wish_what_they_have(two_tables):
    tasks, _ = runner.plan(
        runner.Wish(list(runner.EXPERIMENTS), data=["bike"], methods=["loo-k", "exact-loo"], splits=1)
    )
    assert {(t.experiment, t.entry.name) for t in tasks} == {
        ("k_dependence", "loo-k"), ("degenerate", "loo-k"), ("degenerate", "exact-loo"), ("univariate", "loo-k"),
        ("univariate", "exact-loo"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (runner.Wish(["univariat"]), "no experiment 'univariat'; there are misspecification, "),
        (runner.Wish(["univariate"], methods=["lok"]), "no method 'lok'; there are loo-k-calibrated, loo-k, "),
        (runner.Wish(["univariate"], data=["pol"]), "nothing to run. univariate: no data for pol: set NEARFIELD_DATA"),
        (runner.Wish(["univariate"], data=["bike-twins"]), "no data for bike-twins"),  # only `degenerate` makes twins
        (runner.Wish(["univariate", "binary"], data=["bike", "bik"]), "none of univariate, binary has data bik; see"),
        (runner.Wish(["univariate"], data=["bike"], methods=["pgvi"]), "none of univariate has the methods pgvi"),
        (runner.Wish(["runtime"], data=["bike"]), "runtime has no data bike; there are rows-1000"),
    ],
)
def test_wishes_that_cannot_be_met_say_why(two_tables, wish, message):
    with pytest.raises(ValueError, match=message):
        runner.plan(wish)


def test_entries_with_options_are_found_among_several_experiments(two_tables):
    tasks, _ = runner.plan(runner.Wish(["misspecification", "degenerate"], methods=["loo-64"], splits=1))
    assert [(t.experiment, t.entry.options["k"], t.data) for t in tasks] == [
        ("degenerate", 64, "bike"), ("degenerate", 64, "bike-twins"),
    ]  # fmt: skip


def test_splits_are_those_that_all_results_were_made_with():
    """Other rows would make the figures in the README and in results/ incomparable with new ones."""
    train = [16, 12, 18, 8, 3, 13, 15, 10, 6, 1, 2, 11, 17, 0, 14]
    assert [part.tolist() for part in data.split_rows(20, seed=3)] == [train, [9, 4, 7], [5, 19]]
    train = [816, 923, 151, 900, 213, 100, 851, 503, 643, 172, 205, 533, 669, 991, 372]
    assert [part.tolist() for part in data.split_rows(1000, 7, most=20)] == [train, [381, 492, 65], [817, 219]]
    pairs = np.repeat(np.arange(5), 2)  # the groups are shuffled to 2, 4, 3, 0, 1
    assert [part.tolist() for part in data.split_groups(pairs, seed=2)] == [[4, 5, 6, 7, 8, 9], [0, 1], [0, 1, 2, 3]]


def test_parts_are_scaled_by_the_training_rows(two_tables):
    X, y = data.load("bike")
    X = np.c_[X, np.full(200, 7.0)]  # a constant column is only centred
    train, validation, test = data.split_rows(200, 3)
    parts = data.split(X, y, 3)
    assert parts.rows() == {"train": 150, "validation": 30, "test": 20, "columns": 4}
    mean, std = X[train].mean(0), np.r_[X[train, :3].std(0), 1.0]
    for found, rows in ((parts.X, train), (parts.X_val, validation), (parts.X_test, test)):
        np.testing.assert_allclose(found, (X[rows] - mean) / std, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(parts.y_test, (y[test] - y[train].mean()) / y[train].std(), rtol=1e-12)
    np.testing.assert_allclose(data.split(X, np.stack([y, 2 * y], 1), 3).y[:, 1], parts.y, rtol=1e-12)
    kept = data.split(X, y, 2, groups=np.arange(200) // 40)
    assert (len(kept.y), len(kept.y_val), len(kept.y_test)) == (120, 40, 80)


def test_validation_rows_can_take_the_place_of_the_test_rows(two_tables):
    parts = data.split(*data.load("bike"), 0)
    scored = parts.scored_on("validation")
    np.testing.assert_array_equal(scored.X_test, parts.X_val)
    np.testing.assert_array_equal(scored.y_test, parts.y_val)
    np.testing.assert_array_equal(scored.X, parts.X)
    assert parts.scored_on("test") is parts
    with pytest.raises(ValueError, match="not 'train'"):
        parts.scored_on("train")


def test_labels_stay_labels_and_subsets_are_split_alike(two_tables):
    X, y = data.load("covtype")
    parts = data.split(X, y, 0, most=100)
    assert (len(parts.y), len(parts.y_val), len(parts.y_test), parts.classes) == (75, 15, 10, 7)
    assert parts.y.dtype == np.int64
    _, fir = data.load("covtype_fir")
    np.testing.assert_array_equal(fir, (y == 0) | (y == 5))


def test_data_that_are_not_there_say_what_to_do(two_tables):
    with pytest.raises(FileNotFoundError, match=r"No pol\.npz: set NEARFIELD_DATA .* or add --openml"):
        data.load("pol")
    with pytest.raises(ValueError, match=r"bike\.npz has no array traj; there are X, y\."):
        data.load_array("bike", "traj")
    assert not data.available("pol")
    assert data.available("pol", ask_openml=True)


def test_openml_tables_become_numbers():
    import pandas as pd

    from experiments import openml

    class Found:
        data = pd.DataFrame({"a": np.arange(3.0), "b": pd.Categorical(["x", "y", "x"]), "c": np.ones(3)})
        target = pd.Series(["no", "yes", "no"], dtype="category")

    def fetcher(data_id, as_frame, parser):
        assert data_id == openml.SOURCES["bank"][0]
        return Found

    with pytest.raises(ValueError, match="has 3 rows, bank should have 4521"):
        openml.fetch("bank", fetcher)
    number, _, is_class = openml.SOURCES["bank"]
    openml.SOURCES["three"] = (number, 3, is_class)
    try:
        X, y = openml.fetch("three", fetcher)
    finally:
        del openml.SOURCES["three"]
    np.testing.assert_array_equal(X, [[0, 1, 0], [1, 0, 1], [2, 1, 0]])
    np.testing.assert_array_equal(y, [0, 1, 0])


# --- the command line -----------------------------------------------------------------------------------------------


def command(*arguments):
    from typer.testing import CliRunner

    from experiments.__main__ import app

    return CliRunner().invoke(app, [str(a) for a in arguments], terminal_width=200)


def test_list_names_everything():
    shown = command("list").output
    for name in runner.EXPERIMENTS:
        assert f"{name}: " in shown
    assert "loo-k-calibrated, loo-k, mll-k, vecchia" in shown
    assert "univariate, outputs, classes, counts, outliers, few-rows, update" in shown


def test_run_and_report_end_to_end(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    np.savez(tmp_path / "moons.npz", X=X, y=(X[:, 0] + 0.3 * rng.normal(size=300) > 0).astype(np.int16))
    monkeypatch.setenv("NEARFIELD_DATA", str(tmp_path))
    for name in runner.THREADS:
        monkeypatch.setenv(name, "1")
    out = tmp_path / "results"
    wish = ("run", "binary", "--quick", "--data", "moons", "--methods", "hist-boosting", "--out", out)
    first = command(*wish)
    assert first.exit_code == 0, first.output
    assert "binary / moons / split 0 / hist-boosting: done" in first.output
    assert "1 there already" in command(*wish).output
    assert command("report", "--out", out).exit_code == 0
    assert "| moons 225 rows |" in (out / "report.md").read_text()


def test_mistakes_are_told(tmp_path):
    wrong = command("run", "univariat", "--out", tmp_path)
    assert wrong.exit_code == 2
    assert "no experiment 'univariat'" in wrong.output
    assert "first `python -m experiments run NAME`" in command("report", "--out", tmp_path).output
    assert "greater than or equal to 1" in command("run", "runtime", "--timeout", 0, "--out", tmp_path).output
    broken = tmp_path / "univariate" / "loo-k" / "bike-0.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    wrong = command("report", "--out", tmp_path)
    assert wrong.exit_code == 2
    assert "bike-0.json is not a result file" in "".join(wrong.output.split("\n"))
