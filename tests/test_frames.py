"""Frames go in as they are: pandas, polars, pyarrow and arrays with gaps, in every estimator and in pipelines."""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from nearfield import GPClassifier, GPCountRegressor, GPRegressor, TableEncoder
from nearfield.column_values import TableError, TableWarning, column_of
from nearfield.rules import Rule

N = 160
QUICK = {"k": 12, "max_steps": 20, "random_state": 0}


def frame(n: int = N, seed: int = 0) -> pd.DataFrame:
    """One column of each kind, with gaps in all of them."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "whole": pd.array(rng.integers(0, 5, n), dtype="Int64"),
            "flag": pd.array(rng.random(n) < 0.5, dtype="boolean"),
            "text": rng.choice(["red", "green", "blue"], n),
            "category": pd.Categorical(rng.choice(["u", "v"], n)),
            "time": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 800 * 24, n), unit="h"),
            "length": pd.to_timedelta(rng.integers(0, 100, n), unit="h"),
        }
    )
    for row, name in enumerate(table.columns):
        table.loc[3 * row, name] = None
    return table


def target(table: pd.DataFrame) -> np.ndarray:
    return (table["number"].fillna(0) + (table["text"] == "red") + (table["flag"].fillna(False))).to_numpy(float)


FEATURES = [
    *("number", "number_missing", "whole", "whole_missing", "flag", "flag_missing"),
    *("text=(missing)", "text=blue", "text=green", "text=red", "category=(missing)", "category=u", "category=v"),
    *("time", "time_missing", "time_hour_sin", "time_hour_cos", "time_weekday_sin", "time_weekday_cos"),
    *("time_year_sin", "time_year_cos", "length", "length_missing"),
]


@pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")
def test_all_kinds_of_frames_are_one(tmp_path):
    table = frame()
    y, later = target(table), frame(30, 1)
    encoder = TableEncoder()
    features = encoder.fit_transform(table, y)
    assert list(encoder.get_feature_names_out()) == FEATURES
    assert np.isfinite(features).all()
    forms = {
        "polars": pl.from_pandas,
        "enum": lambda t: pl.from_pandas(t).with_columns(pl.col("category").cast(pl.Enum(["u", "v"]))),
        "arrow": lambda t: pl.from_pandas(t).to_arrow(),
        "objects": lambda t: t.astype(object),
        "arrow dtypes": lambda t: t.convert_dtypes(dtype_backend="pyarrow").assign(length=t["length"]),
    }
    for name, form in forms.items():
        np.testing.assert_allclose(TableEncoder().fit_transform(form(table), y), features, err_msg=name, rtol=1e-12)
        np.testing.assert_allclose(encoder.transform(form(later)), encoder.transform(later), err_msg=name, rtol=1e-12)
    model = GPRegressor(**QUICK).fit(table, y)
    expected = model.predict(later)
    np.testing.assert_array_equal(
        GPRegressor(**QUICK).fit(pl.from_pandas(table), y).predict(pl.from_pandas(later)), expected
    )
    model.save(tmp_path / "m")
    loaded = GPRegressor.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(later), expected)
    assert list(loaded.feature_names_in_) == list(table.columns)
    assert loaded.encoder_.rules_ == model.encoder_.rules_
    assert list(loaded.feature_relevance_) == FEATURES
    assert len(loaded.update(later, target(later)).loo_.mean) == N + 30


@pytest.mark.parametrize(
    ("estimator", "labels", "given"),
    [
        (GPClassifier, lambda y: np.where(y > 1, "high", "low"), {}),
        (GPClassifier, lambda y: np.digitize(y, [0, 1]), {}),
        (GPCountRegressor, lambda y: np.floor(np.exp(y)), {"exposure": np.full(N, 2.0)}),
        (GPRegressor, lambda y: np.column_stack([y, -y]), {}),
    ],
)
def test_every_family_takes_text_with_many_levels(estimator, labels, given):
    rng = np.random.default_rng(0)
    towns = rng.integers(0, 70, N)
    table = pd.DataFrame({"x": rng.normal(size=N), "town": [f"town {i}" for i in towns]})
    y = labels(table["x"].to_numpy() + towns / 40)
    model = estimator(**QUICK).fit(table, y, **given)
    assert model.encoder_.rules_[1].kind == "means"
    later = {name: values[:20] for name, values in given.items()}
    assert np.isfinite(model.predict(table[:20], **later).astype(float) if y.dtype.kind in "fi" else 0).all()
    with pytest.warns(TableWarning, match="20 values of column 'town' are levels not seen"):
        model.predict(table[:20].assign(town="elsewhere"), **later)


def test_means_of_levels_leave_out_the_fold_of_a_row():
    rng = np.random.default_rng(1)
    n, size = 600, 80
    level = rng.integers(0, size, n)
    y = level / 20 + rng.normal(size=n)
    text = pd.DataFrame({"c": [f"l{i:03d}" for i in level]})
    encoder = TableEncoder(target_type="number")
    features = encoder.fit_transform(text, y)
    fold = np.random.default_rng(0).permutation(n) % 5
    table = np.array(encoder.rules_[0].means)[:, 0]
    sums, counts = (np.bincount(level, w, size) for w in (y, np.ones(n)))
    prior = [(s / c - m) * c / (m - y.mean()) for s, c, m in zip(sums, counts, table[:-1], strict=True)]
    np.testing.assert_allclose(prior, prior[0])  # rows that the mean of all counts for: the same at every level
    for row in range(0, n, 37):
        others = (level == level[row]) & (fold != fold[row])
        expected = (y[others].sum() + prior[0] * y.mean()) / (others.sum() + prior[0])
        assert features[row, 0] == pytest.approx(expected)
        assert features[row, 1] == pytest.approx(np.log1p(counts[level[row]]))
    np.testing.assert_allclose(encoder.transform(text)[:, 0], table[level])
    # a row's own target has no part in its feature
    changed = TableEncoder(target_type="number").fit_transform(text, np.where(np.arange(n) == 5, 1e3, y))
    assert abs(changed[5, 0] - features[5, 0]) < 10


def test_levels_that_say_nothing_are_drawn_to_the_mean():
    rng = np.random.default_rng(2)
    text = pd.DataFrame({"c": [f"l{i}" for i in rng.integers(0, 100, 1000)]})
    features = TableEncoder(target_type="number").fit_transform(text, rng.normal(size=1000))
    assert features[:, 0].std() < 0.1  # means of ten rows would have a spread of .3


def grouped(n: int, alike: bool) -> tuple[pd.DataFrame, np.ndarray]:
    """Text of 40 levels: of two sorts that cross x in opposite directions, or each with a level of its own."""
    rng = np.random.default_rng(3)
    level, x = rng.integers(0, 40, n), rng.normal(size=n)
    mean = np.where(level % 2 == 0, 3.0, -3.0) if alike else 0.0
    slope = np.where(level % 2 == 0, 2.0, -2.0) if alike else np.array([1.0, -1.0])[(level // 20)]
    table = pd.DataFrame({"x": x, "c": [f"l{i:02d}" for i in level]})
    return table, mean + slope * np.sin(2 * x) + 0.3 * rng.normal(size=n)


def test_left_out_rows_choose_how_levels_are_encoded():
    kinds = []
    for alike in (True, False):
        model = GPRegressor(max_steps=40, random_state=0).fit(*grouped(500, alike))
        kinds.append(model.encoder_.rules_[1].kind)
    assert kinds == ["means", "text"]  # means tell which levels are alike; where they tell nothing, levels are needed
    few = GPRegressor(**QUICK).fit(*grouped(300, True))
    assert few.encoder_.rules_[1].kind == "text"


def test_numbers_can_be_levels():
    X = np.column_stack([np.arange(12) % 3, np.linspace(0, 1, 12)])
    named = pd.DataFrame(X, columns=["kind", "x"])
    expected = ["kind=0", "kind=1", "kind=2", "x"]
    for chosen in (["kind"], [0], [True, False], np.array([True, False])):
        assert TableEncoder(categorical_features=chosen).fit(named).feature_names == expected
    model = GPRegressor(categorical_features=["kind"], **QUICK).fit(named, np.arange(12.0))
    assert model.encoder_.feature_names == expected
    for chosen, message in (
        (["kin"], "'kin' that is not there. Did you mean 'kind'"),
        ([True], "mask of 1"),
        ("all", "from_dtype"),
    ):
        with pytest.raises(ValueError, match=message):
            TableEncoder(categorical_features=chosen).fit(named)


def test_arrays_with_gaps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    X[::9, 1] = np.nan
    y = X[:, 0]
    model = GPRegressor(**QUICK).fit(X, y)
    assert model.encoder_.feature_names == ["x0", "x1", "x1_missing", "x2"]
    assert np.isfinite(model.predict(X)).all()
    with pytest.warns(TableWarning, match="1 values of column 'x0', complete in training"):
        model.predict([[np.nan, 0.0, 1.0]])
    objects = X.astype(object)
    objects[::9, 1] = None
    np.testing.assert_array_equal(GPRegressor(**QUICK).fit(objects, y).predict(objects), model.predict(X))
    assert model.__sklearn_tags__().input_tags.allow_nan


def test_a_row_of_weight_zero_has_no_part_in_the_encoding():
    table, y = frame(), target(frame())
    weights = np.ones(N)
    weights[-1] = 0
    odd = table.copy()
    odd.loc[N - 1, "text"], odd.loc[N - 1, "number"] = "purple", 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPRegressor(**QUICK).fit(odd, y, sample_weight=weights)
        same = GPRegressor(**QUICK).fit(table[:-1], y[:-1])
    assert model.encoder_.rules_ == same.encoder_.rules_
    np.testing.assert_array_equal(model.predict(table[:9]), same.predict(table[:9]))


def test_warps_by_the_name_of_a_column_or_a_feature():
    table, y = frame(), target(frame())
    model = GPRegressor(warp={"number": False, "time": False}, **QUICK).fit(table, y)
    bent = dict(zip(FEATURES, model.bends_[:, 0], strict=True))
    assert bent["number"] == bent["time"] == bent["time_year_sin"] == 1
    assert bent["whole"] < 1
    assert GPRegressor(warp=["time_year_sin"], **QUICK).fit(table, y).bends_[FEATURES.index("time"), 0] == 1


def test_a_pipeline_and_a_column_transformer():
    table, y = frame(), target(frame())
    pipe = make_pipeline(TableEncoder(), Ridge()).fit(table, y)
    assert pipe.score(table, y) > 0.9
    assert list(pipe[:-1].get_feature_names_out()) == FEATURES
    both = ColumnTransformer([("t", TableEncoder(), ["text", "time"]), ("n", "passthrough", ["length"])])
    both.set_output(transform="pandas")
    assert "t__text=red" in both.fit_transform(table, y).columns


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": ["a"] * N}, "column 'number' has 'a' in row 0; a number is expected"),
        ({"time": 1.0}, "column 'time' holds numbers; dates are expected"),
        ({"flag": 2.0}, "column 'flag' has 2 in row 0; true or false"),
        ({"number": np.inf}, "column 'number' has 160 infinite values, first in row 0"),
        ({"text": [{}] * N}, "column 'text': row 0 has a dict"),
        ({"number": [1, "x"] * (N // 2)}, "column 'number': row 1 has 'x' among cells that are of the kind number"),
    ],
)
def test_cells_that_cannot_be_read_are_named(change, message):
    table = frame()
    model = GPRegressor(**QUICK).fit(table, target(table))
    with pytest.raises((ValueError, TypeError), match=message):
        model.predict(table.assign(**change))


def test_text_is_read_as_what_it_was_in_training():
    table = frame()
    model = GPRegressor(**QUICK).fit(table, target(table))
    written = table.assign(
        number=table["number"].map(lambda v: None if v != v else repr(v)),
        flag=table["flag"].map({True: "true", False: "0"}),
        time=table["time"].map(lambda t: None if pd.isna(t) else t.isoformat()),
    )
    np.testing.assert_array_equal(model.predict(written), model.predict(table))


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["a", "a"], "more than once, such as 'a'"), (["a", ""], "column 1 .* has no name"), (["a", None], "has no name")],
)
def test_names_of_columns(columns, message):
    table = pd.DataFrame(np.zeros((9, 2)), columns=columns)
    with pytest.raises(TableError, match=message):
        GPRegressor(**QUICK).fit(table, np.arange(9.0))


@pytest.mark.filterwarnings("ignore::nearfield.TrainingRowsWarning")
def test_names_that_the_encoder_gives_may_be_there_already(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"a": rng.normal(size=60), "a_missing": rng.normal(size=60), "c": ["x", "(missing)", None] * 20}
    )
    table.loc[3, "a"] = np.nan
    model = GPRegressor(**QUICK).fit(table, rng.normal(size=60))
    assert list(model.feature_relevance_) == ["a", "a_missing", "a_missing_2", "c=(missing)", "c=x"]
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(GPRegressor.load(tmp_path / "m").predict(table), model.predict(table))


def test_tables_of_pyarrow_are_read_by_name():
    table = pl.from_pandas(frame()).to_arrow()
    model = GPRegressor(**QUICK).fit(table, target(frame()))
    shuffled = table.select(table.column_names[::-1])
    np.testing.assert_array_equal(model.predict(shuffled), model.predict(table))
    with pytest.raises(TableError, match="lacks the column 'text'"):
        model.predict(table.rename_columns([f"{n}s" if n == "text" else n for n in table.column_names]))


def test_names_that_are_numbers_are_no_names():
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)))
    model = GPRegressor(**QUICK).fit(table, table[0])
    assert not hasattr(model, "feature_names_in_")
    assert list(model.feature_relevance_) == ["x0", "x1"]


def test_columns_of_objects():
    day = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    for cells, kind, values in (
        ([1, 2.5, None, Decimal("3")], "number", [1, 2.5, np.nan, 3]),
        ([True, None, False], "flag", [1, np.nan, 0]),
        ([day, None, datetime.date(1970, 1, 2)], "date", [18262 + 10 / 24, np.nan, 1]),
        ([datetime.timedelta(days=2), np.timedelta64("NaT")], "duration", [2, np.nan]),
        ([None, float("nan"), pd.NA, pd.NaT], "number", [np.nan] * 4),
    ):
        found = column_of(np.array(cells, dtype=object))
        assert found.kind == kind
        np.testing.assert_allclose(found.values, values)
    text = column_of(pd.Series(["b", " a", None, "", "b "], dtype=object)).values
    assert text.levels == ["b", "a"]
    assert text.codes.tolist() == [0, 1, -1, -1, 0]


@pytest.mark.parametrize("key", ["name", "kind", "levels", "means", "log_counts", "cycles", "form"])
def test_a_damaged_rule_is_refused(key):
    text = pd.DataFrame({"c": [f"l{i % 70}" for i in range(280)]})
    rule = TableEncoder().fit(text, np.arange(280.0)).rules_[0]
    assert Rule.from_json(rule.to_json()) == rule
    with pytest.raises(ValueError, match="description of"):
        Rule.from_json({**rule.to_json(), key: [[1, "x"]]})


@parametrize_with_checks([TableEncoder()])
def test_scikit_learns_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)
