"""The page to play with a model: what it answers is what the estimator says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from estimator_data import quick, quick_classifier, small
from explore_models import explorer_of, house_table, model_of, started
from scipy.integrate import trapezoid

from nearfield import GPRegressor
from nearfield.explore import Explorer
from nearfield.explore.fields import Refused

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

NUMBERS = ["number", "student_t", "outputs", "lonlat", "table", "noise", "groups"]
COUNTS = ["counts", "binomial"]


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_are_those_of_the_estimator(kind):
    explorer, asked, X = started(kind)
    model, given = model_of(kind), asked["given"]
    assert (given == {"noise_variance": 0.0}) == (kind == "noise")
    found = explorer.predicted({**asked, "choice": 1 if kind == "outputs" else 0})
    mean, std = model.predict(X, return_std=True, **given)
    told = found["targets"]
    np.testing.assert_allclose([one["mean"] for one in told], np.ravel(mean), rtol=1e-12)
    np.testing.assert_allclose([one["std"] for one in told], np.ravel(std), rtol=1e-12)
    for name, coverage in (("narrow", 0.5), ("wide", 0.9)):
        ends = model.predict_interval(X, coverage, **given)
        np.testing.assert_allclose([one[name] for one in told], np.stack(list(map(np.ravel, ends)), axis=1), rtol=1e-9)
    density = found["density"]
    assert trapezoid(density["y"], density["x"]) == pytest.approx(1, abs=2e-3)
    own = told[-1]
    cut = np.array(density["x"]) <= own["wide"][0]
    assert trapezoid(np.array(density["y"])[cut], np.array(density["x"])[cut]) == pytest.approx(0.05, abs=0.01)
    assert found["support"] == pytest.approx(np.ravel(model.support(X))[-1])
    assert found["remarks"] == []


@pytest.mark.parametrize("kind", ["classes", "two classes"])
def test_classes_are_those_of_the_estimator(kind):
    explorer, asked, X = started(kind)
    model, found = model_of(kind), explorer.predicted(asked)
    assert [one["name"] for one in found["classes"]] == [str(label) for label in model.classes_]
    np.testing.assert_allclose([one["p"] for one in found["classes"]], model.predict_proba(X)[0])
    assert [one["inside"] for one in found["classes"]] == model.predict_set(X, 0.9)[0].tolist()
    assert str(model.predict(X)[0]) in found["says"]


@pytest.mark.parametrize("kind", COUNTS)
def test_counts_are_those_of_the_estimator(kind):
    explorer, asked, X = started(kind)
    model, found = model_of(kind), explorer.predicted(asked)
    dist = model.predict_dist(X, **asked["given"])
    (told,) = found["targets"]
    assert told["mean"] == pytest.approx(dist.mean()[0])
    assert told["wide"] == [float(end[0]) for end in dist.interval(0.9)]
    assert sum(bar["p"] for bar in found["bars"]) == pytest.approx(1, abs=5e-3)
    for bar in found["bars"]:
        assert bar["p"] == pytest.approx(dist.cdf(bar["to"])[0] - dist.cdf(bar["from"] - 1)[0], abs=1e-8)
    larger = {name: 2 * value for name, value in asked["given"].items()}
    assert explorer.predicted({**asked, "given": larger})["targets"][0]["mean"] == pytest.approx(2 * told["mean"])


@pytest.mark.parametrize("kind", [*NUMBERS, "classes", *COUNTS])
def test_effects_are_predictions_with_one_column_changed(kind):
    explorer, asked, X = started(kind)
    model, names = model_of(kind), [column["name"] for column in explorer.described()["columns"]]
    found = {told["column"]: told for told in explorer.effects({**asked, "columns": names})["effects"]}
    assert list(found) == names
    prediction = explorer.predicted(asked)
    now = prediction["classes"][0]["p"] if kind == "classes" else prediction["targets"][0]["mean"]
    for place, name in enumerate(names):
        told = found[name]
        assert told["mean"][told["at"]] == pytest.approx(now, rel=1e-9)
        assert (np.array(told["low"]) <= np.array(told["mean"]) + 1e-9).all()
        assert (np.array(told["mean"]) <= np.array(told["high"]) + 1e-9).all()
        if told["ordered"] and not told["date"]:
            many = pd.concat([pd.DataFrame(X)] * len(told["values"]))
            many.isetitem(place, told["values"])
            many = many if hasattr(X, "columns") else many.to_numpy()
            mean = model.predict_proba(many) if kind == "classes" else model.predict(many, **asked["given"])
            np.testing.assert_allclose(told["mean"], np.reshape(mean, (len(many), -1))[:, 0], rtol=1e-9)
    if kind in ("number", "lonlat"):
        ends = model.predict_interval(many, 0.9)
        np.testing.assert_allclose([told["low"], told["high"]], ends, rtol=1e-9)


@pytest.mark.parametrize("kind", ["number", "table", "classes", *COUNTS])
def test_neighbours_are_those_of_explain(kind):
    explorer, asked, X = started(kind)
    model, found = model_of(kind), explorer.neighbours(asked)
    explained = model.explain(X, len(found["rows"]), **asked["given"])
    assert [one["row"] for one in found["rows"]] == explained.neighbours[0].tolist()
    np.testing.assert_allclose([one["weight"] for one in found["rows"]], explained.weights[0])
    np.testing.assert_allclose([one["change"] for one in found["rows"]], explained.changes[0])
    assert found["rest"] == pytest.approx(explained.rest[0])
    if kind == "table":
        table, rent = house_table()
        for one in found["rows"]:
            row = table.iloc[one["row"]]
            assert float(one["target"][0].replace(",", "")) == pytest.approx(rent[one["row"]], rel=1e-3)
            assert one["values"]["area"] == pytest.approx(row["area"])
            assert (one["values"]["rooms"] is None) == np.isnan(row["rooms"])
            assert one["values"]["town"] == (None if pd.isna(row["town"]) else row["town"])
            assert one["values"]["garden"] is bool(row["garden"])
            assert one["values"]["sold"] == str(row["sold"].date())


def test_neighbours_of_several_outputs_are_the_nearest():
    explorer, asked, X = started("outputs")
    found, training = explorer.neighbours(asked), small(150)[0]
    assert [set(one) for one in found["rows"]] == [{"row", "target", "given", "values", "shown"}] * 8
    for one in found["rows"]:
        np.testing.assert_allclose(list(one["values"].values()), training[one["row"]], rtol=1e-3)
    nearest = found["rows"][0]["row"]
    assert np.abs(training[nearest] - X[0]).max() < 1e-2  # where it started


def test_training_rows_are_those_of_the_table():
    explorer, (table, _) = explorer_of("table"), house_table()
    for _ in range(5):
        found = explorer.random_row()
        row = table.iloc[found["row"]]
        assert found["values"]["area"] == row["area"]
        assert found["shown"]["garden"] == str(row["garden"]).lower()
        assert found["shown"]["town"] == ("(missing)" if pd.isna(row["town"]) else row["town"])


def test_columns_are_described():
    found = {column["name"]: column for column in explorer_of("table").described()["columns"]}
    kinds = {name: column["kind"] for name, column in found.items()}
    assert kinds == {
        "area": "number", "rooms": "number", "town": "text", "garden": "flag", "street": "text", "sold": "date"
    }  # fmt: skip
    assert [name for name, column in found.items() if column["missing"]] == ["rooms", "town"]
    assert found["town"]["levels"] == ["Bonn", "Trier"]
    assert found["rooms"]["step"] == 1
    assert 20 <= found["area"]["low"] < 25 < 145 < found["area"]["high"] <= 150


def test_gaps_levels_and_far_points_are_told():
    explorer, asked, X = started("table")
    model = model_of("table")

    def told(**values):
        return explorer.predicted({**asked, "values": {**asked["values"], **values}})

    rows = X.assign(rooms=[None]).astype({"rooms": float})
    found = told(rooms=None)
    assert found["targets"][0]["mean"] == pytest.approx(model.predict(rows)[0])
    assert found["remarks"] == []
    found = told(town="Kiel", street="Nowhere")
    assert found["targets"][0]["mean"] == pytest.approx(model.predict(X.assign(town="Kiel", street="Nowhere"))[0])
    assert [remark.split(":")[0] for remark in found["remarks"]] == ["town", "street"]
    (remark,) = told(area="")["remarks"]
    assert "their median" in remark
    found = told(area="100000", sold="2099-01-01")
    assert len(found["remarks"]) == 2
    assert "area: 100,000 is beyond the training rows, which go from" in found["remarks"][0]
    assert found["rests"].startswith("Far from all training rows")
    assert explorer.predicted(asked)["rests"] == "Amid the training rows."


WRONG = {
    "area": ["abc", "inf", "1,5", True, [1], "1e999"],
    "garden": ["perhaps", 2],
    "sold": ["yesterday", "2024-13-01", 5],
    "town": [3, {}],
}


@pytest.mark.parametrize("name", WRONG)
def test_values_outside_of_the_domain_are_refused(name):
    explorer, asked, _ = started("table")
    for value in WRONG[name]:
        with pytest.raises(Refused, match=f"Column '{name}' has .* expected") as error:
            explorer.predicted({**asked, "values": {**asked["values"], name: value}})
        assert error.value.column == name


def test_other_requests_that_make_no_sense_are_refused():
    explorer, asked, _ = started("table")
    values = asked["values"]
    for wrong, says in [
        ([], "An object"),
        ({}, '"values" is missing'),
        ({"values": {**values, "aera": 1}}, "no column 'aera'. Did you mean 'area'?"),
        ({"values": {"area": 1}}, "'rooms' is not there"),
        ({**asked, "choice": 1}, '"choice" is 1'),
        ({**asked, "choice": True}, '"choice" is True'),
    ]:
        with pytest.raises(Refused) as error:
            explorer.predicted(wrong)
        assert says in str(error.value)
    for columns in ("area", ["aera"], [1], ["area"] * 100):
        with pytest.raises(Refused):
            explorer.effects({**asked, "columns": columns})
    assert explorer.effects({**asked, "columns": []}) == {"effects": []}
    explorer, asked, _ = started("binomial")
    for trials in (None, 0, 2.5, "many"):
        with pytest.raises(Refused, match="Trials") as error:
            explorer.predicted({**asked, "given": {"trials": trials}})
        assert error.value.column == "trials"
    with pytest.raises(Refused, match="Exposure is"):
        explorer_of("counts").predicted({**started("counts")[1], "given": {"exposure": 0}})


def test_a_set_of_classes_from_some_of_many_rows(monkeypatch):
    """Where leaving all rows out would take long, some are; here all, so that the set is that of the estimator."""
    from nearfield.explore import kinds

    monkeypatch.setattr(kinds, "affordable", lambda model: 0)
    explorer, (_, asked, _) = Explorer(model_of("classes")), started("classes")
    found, whole = explorer.predicted(asked), explorer_of("classes").predicted(asked)
    assert found["classes"] == whole["classes"]
    assert "150 left-out rows" in explorer.described()["target"]["set"]


def test_a_mapped_model_of_which_few_rows_are_read(tmp_path, monkeypatch):
    from nearfield import rows, sweep
    from nearfield.explore import rows as shown
    from nearfield.neighbours import BoxedInputs

    monkeypatch.setattr(rows, "BOXED_ROWS", 256)
    monkeypatch.setattr(sweep, "_MOST_LOCATED", 256)
    monkeypatch.setattr(shown, "_DRAWN", 64)
    X, y = small(2000)
    quick(k=16, warp=False).fit(X, y).save(tmp_path / "model.nearfield")
    model = GPRegressor.load(tmp_path / "model.nearfield", mapped=True)
    taken, whole = [], BoxedInputs.__getitem__
    assert isinstance(model._fit.predictor.rows.inputs, BoxedInputs)

    def counting(self, which):
        found = whole(self, which)
        taken.append(len(np.reshape(found, (-1, self.shape[1]))))
        return found

    monkeypatch.setattr(BoxedInputs, "__getitem__", counting)
    explorer = Explorer(model)
    asked = {"values": explorer.described()["start"]["values"]}
    X = np.array([list(asked["values"].values())])
    assert explorer.predicted(asked)["targets"][0]["mean"] == model.predict(X)[0]
    found = explorer.neighbours(asked)["rows"]
    assert [one["row"] for one in found] == model.explain(X, 8).neighbours[0].tolist()
    assert taken
    assert max(taken) < 1000


def test_of_many_classes_the_most_probable_come_first():
    X = np.random.default_rng(0).uniform(0, 40, (400, 1))
    model = quick_classifier(k=20).fit(X, X[:, 0].astype(int))
    found = Explorer(model).predicted({"values": {"x0": 7.5}})
    p = [one["p"] for one in found["classes"]]
    assert p == sorted(p, reverse=True)
    assert len(p) == 30
    assert found["others"] == pytest.approx(1 - sum(p))
    assert found["best"] == found["classes"][0]["class"] == model.predict([[7.5]])[0]
