"""Reports: the dict against the model, sentences that are true and beyond chance, and files that appear whole."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts, small
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold

from nearfield.diagnostics import Predicted, left_out
from nearfield.report import write_report
from nearfield.report.markdown import markdown
from nearfield.report.page import sections
from nearfield.report.svg import Axis, Figure, Mark, Table, coloured, dates, drawn, nice, picture

pytest.importorskip("jinja2", reason="pages need Jinja2")
VOID = {"meta", "br", "img", "input", "link", "hr"}


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "district": rng.choice(["north", "south", "west"], n),
            "area": rng.uniform(20, 120, n),
            "built": pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 20000, n), unit="D"),
        }
    )
    frame.loc[::11, "area"] = np.nan
    return frame, 0.1 * frame["area"].fillna(70) + (frame["district"] == "south") + 0.5 * rng.normal(size=n)


@pytest.fixture(scope="module")
def rented():
    X, y = table()
    return quick().fit(X, y.rename("rent")), X, y


@pytest.fixture(scope="module")
def models():
    """Fitted models of every kind, with their data."""
    X, y = small(120, 2)
    counts_X, counts, _ = counted(120)
    label_X, labels = labelled(120, 3)
    made = {
        "numbers": (quick().fit(X, y), X, y, {}),
        "map": (quick(coordinates=[0, 1]).fit(X, y), X, y, {}),
        "outputs": (quick(outputs="shared").fit(X, np.stack([y, -y], 1)), X, np.stack([y, -y], 1), {}),
        "student": (quick(likelihood="student_t").fit(X, y), X, y, {}),
        "column": (quick().fit(X, y[:, None]), X, y[:, None], {}),
        "classes": (quick_classifier().fit(label_X, labels), label_X, labels, {}),
        "two": (quick_classifier().fit(X, np.where(y > 0, "<up>", "down")), X, np.where(y > 0, "<up>", "down"), {}),
        "counts": (quick_counts().fit(counts_X, counts), counts_X, counts, {}),
        "exposed": (
            quick_counts().fit(counts_X, counts, exposure=np.full(120, 2.0)), counts_X, counts, {"exposure": 2.0},
        ),
    }  # fmt: skip
    return made


@pytest.fixture(scope="module")
def told(models):
    """What is told of each, computed once."""
    known = {}

    def of(kind):
        if kind not in known:
            model, X, y, given = models[kind]
            known[kind] = model.report_data(X, y, name=f"{kind} & <co>", **given)
        return known[kind]

    return of


KINDS = ("numbers", "map", "outputs", "student", "column", "classes", "two", "counts", "exposed")


class Page(HTMLParser):
    """Checks that elements close, and collects names, links and addresses."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.targets, self.found = [], [], [], {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        told = dict(attributes)
        self.found.setdefault(tag, []).append(told)
        if "id" in told:
            self.ids.append(told["id"])
        for key in ("aria-labelledby", "aria-describedby"):
            self.targets += told.get(key, "").split()
        if told.get("href", "").startswith("#"):
            self.targets.append(told["href"][1:])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_a_page(told, kind, tmp_path):
    write_report(tmp_path / "page.html", told(kind))
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert set(page.targets) <= set(page.ids)
    assert len(page.found["h1"]) == 1
    assert "<co>" not in text  # names are text, not markup
    assert "<up>" not in text
    for svg in page.found["svg"]:
        assert svg["role"] == "img"
    assert len(page.found["svg"]) == len(page.found["desc"]) == len(page.found["figure"])
    assert len(page.found["details"]) == len(page.found["figure"]) + 1
    assert len(text) < 3e6
    addresses = [told.get("href") or told.get("src") or "" for tag in page.found.values() for told in tag]
    assert all(address == "" or address.startswith(("#", "data:image/png")) for address in addresses)
    assert not re.search(r"url\((?!#)|@import|<script|https?://", text)
    assert "nan" not in re.sub(r"data:image[^\"]*", "", text).lower().split()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_data_that_json_knows(models, told, kind, tmp_path):
    write_report(tmp_path / "data.json", told(kind))
    found = json.loads((tmp_path / "data.json").read_text())
    assert found == told(kind)
    assert [part["rows"] for part in found["evaluations"]] == ["test rows", "left-out rows"]
    assert found["model"]["k"] == models[kind][0].k_
    assert markdown(found).startswith("# ")


def test_the_data_are_those_of_the_model(rented):
    model, X, y = rented
    found = model.report_data(X, y)
    rows = left_out(model).targets["rent"]
    told = found["evaluations"][1]["targets"][0]
    assert told["scores"]["model"] == pytest.approx(rows.scores())
    assert told["scores"]["constant"]["rmse"] == pytest.approx(y.std(ddof=0), rel=1e-6)
    assert told["calibration"]["inside"] == told["scores"]["model"]["coverage_90"]
    assert found["evaluations"][0]["targets"][0]["scores"]["model"]["nll"] == pytest.approx(-model.log_score(X, y))
    losses = {entry["column"]: entry["loss"] for entry in found["importance"]["columns"]}
    assert [losses[name] for name in X.columns] == model.feature_importances_.tolist()
    columns = {entry["name"]: entry for entry in found["data"]["columns"]}
    assert columns["district"]["levels"] == 3
    assert columns["area"]["missing"] == pytest.approx(X["area"].isna().mean())
    assert columns["built"]["low"] == str(X["built"].min().date())
    worst = told["worst"][0]
    assert worst["observed"] == pytest.approx(y[worst["row"]])
    assert worst["predicted"] == pytest.approx(model.loo_.mean[worst["row"]])
    for near in worst["neighbours"]:
        assert near["observed"] == pytest.approx(y[near["row"]])


def test_what_is_off_is_said_and_what_is_not_is_not(rented):
    model, *_ = rented
    X, _ = table(900, seed=1)
    dist, rng = model.predict_dist(X), np.random.default_rng(2)
    honest = dist.rvs(random_state=rng)
    middle = dist.mean()
    wild = np.where(X["district"] == "north", middle + 3 * (honest - middle), honest)
    said = " ".join(model.report_data(X, wild)["evaluations"][0]["targets"][0]["says"]["calibration"])
    assert "For district = north intervals hold" in said
    assert "too narrow" in said
    calm = model.report_data(X, honest)["evaluations"][0]["targets"][0]
    assert calm["calibration"]["inside_p"] > 1e-3
    assert min(entry["p"] for entry in calm["calibration"]["slices"]) > 1e-3
    shifted = model.report_data(X, honest + 2 * dist.std())["evaluations"][0]["targets"][0]
    assert any("too low by" in text for text in shifted["says"]["residuals"])
    assert any("higher than the middle" in text for text in shifted["says"]["calibration"])


def test_false_alarms_are_rare(rented):
    """Of 40 sets of test rows that follow the predictions, few have an alarm in any slice."""
    from nearfield.diagnostics.coverage import by_slices
    from nearfield.diagnostics.slices import column_slices

    model = rented[0]
    rows = left_out(model)
    slices, dist = column_slices(model.encoder_, rows.features), rows.targets["rent"].dist
    rng, alarms = np.random.default_rng(3), 0
    for _ in range(40):
        told = by_slices(Predicted.of(dist.rvs(random_state=rng), dist), slices)
        alarms += any(entry["p"] < 0.05 for entry in told)
    assert alarms <= scipy.stats.binom(40, 0.05).isf(1e-3)


def test_boosting_is_cross_validated(models):
    model, X, y, _ = models["numbers"]
    found = model.report_data(compare=["boosting"])["evaluations"][0]["targets"][0]["scores"]
    folded = np.empty(len(y))
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        folded[test] = HistGradientBoostingRegressor(random_state=0).fit(X[train], y[train]).predict(X[test])
    assert found["boosting"]["rmse"] == pytest.approx(np.sqrt(np.mean((y - folded) ** 2)), rel=0.05)
    told = models["classes"][0].report_data(compare=["boosting"])["evaluations"][0]
    assert 0 < told["classes"]["scores"]["boosting"]["error"] < 1


def test_boosting_that_cannot_be_compared_is_said():
    X, y = small(80, 2)
    model = quick(leave_out="past").fit(X, y, times=np.arange(80.0))
    assert "not compared" in model.report_data(compare=["boosting"])["evaluations"][0]["note"]


def test_grouped_rows_are_judged_as_groups():
    X, y = small(200, 2)
    model = quick().fit(X, y, groups=np.repeat(np.arange(50), 4))
    told = model.report_data()["evaluations"][0]["targets"][0]["calibration"]
    assert told["independent"] == pytest.approx(50)


def test_markdown_is_plain_text(models, tmp_path):
    models["two"][0].report(tmp_path / "page.md", name="a | b * c")
    text = (tmp_path / "page.md").read_text()
    assert text.startswith("# a | b \\* c\n")
    assert "\\<up\\>" in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1


def test_nothing_is_half_written(models, tmp_path):
    model, X, y, _ = models["numbers"]
    for path, message in ((tmp_path / "a.pdf", "ends in .pdf"), (tmp_path / "plain", "ends in nothing")):
        with pytest.raises(ValueError, match=message):
            model.report(path)
    with pytest.raises(OSError, match="report"):
        model.report(tmp_path / "nowhere" / "page.html")
    with pytest.raises(ValueError, match="y is missing"):
        model.report(tmp_path / "page.html", X)
    with pytest.raises(ValueError, match="a target for each row"):
        model.report(tmp_path / "page.html", X, y[:5])
    with pytest.raises(ValueError, match="compare is 'boosting'"):
        model.report(tmp_path / "page.html", compare="boosting")
    with pytest.raises(ValueError, match="compare is"):
        model.report(tmp_path / "page.html", compare=["forest"])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="not fitted"):
        type(model)().report(tmp_path / "page.html")


def test_tiny_tables_have_a_page(tmp_path):
    for n in (1, 2, 5):
        model = quick().fit(np.arange(n)[:, None], np.arange(n) * 1.0) if n > 1 else quick().fit([[0.0]], [1.0])
        model.report(tmp_path / "page.html")
        Page((tmp_path / "page.html").read_text())


def test_training_is_told_after_a_round_trip(models, tmp_path):
    model = models["numbers"][0]
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    assert again.summary_.refreshes == model.summary_.refreshes
    assert again.report_data() == model.report_data()


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_ticks_are_round():
    assert nice(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert nice(-3.2, 11) == pytest.approx([-2.5, 0, 2.5, 5, 7.5, 10])
    assert nice(2, 2) == [2]
    assert dates(17_900, 19_000) == [(17_897 + 365, "2020-01"), (18_628, "2021-01"), (18_993, "2022-01")]
    assert dates(0, 40)[:2] == [(0, "1970-01-01"), (10, "1970-01-11")]
    assert dates(5e6, 6e6)  # beyond the years that dates know


def test_labels_have_the_room_that_they_need():
    """Those beside a figure move it to the right; those below are turned where they would not fit."""

    def of(levels, top):
        ticks = [(float(i), f"a long level {i}") for i in range(levels)]
        x = Axis("x", -0.5, levels - 0.5, ticks, levels=True)
        text = drawn(Figure("a", "A", "d", x, Axis("y", 0, top), [Mark("points", [0], [0])], Table(["x"], [])))
        assert all(label in text for _, label in ticks)
        return text, float(re.search(r'<line class="grid" x1="([\d.]+)"', text)[1])

    assert "rotate(-35)" not in of(2, 1)[0]
    assert "rotate(-35)" in of(9, 1)[0]
    assert of(2, 1e6)[1] > of(2, 1)[1] + 10


def test_columns_of_dates_have_dates_on_their_axes(rented):
    model, X, y = rented
    page = sections(model.report_data(X, y))
    drawings = [figure for section in page for part in section.parts for figure in part.figures]
    own = [figure for figure in drawings if figure.x.label == "built"]
    assert len(own) >= 2  # residuals, and the effect
    for figure in own:
        assert re.fullmatch(r"\d{4}-\d\d", figure.x.marks()[0][1])


def test_right_rows_that_are_as_sure_as_they_say_are_no_finding():
    """Probabilities of nearly one, and no row wrong: the gap hardly varies, yet it is chance."""
    X = np.linspace(-1, 1, 160)[:, None]
    told = quick_classifier(k=20).fit(X, X[:, 0] > 0).report_data()["evaluations"][0]["classes"]
    assert told["slices"]
    assert all(entry["p"] > 0.05 for entry in told["slices"] if entry["right"] == 1)


def test_pictures_are_pngs_with_the_colours():
    from base64 import b64decode
    from io import BytesIO

    image = pytest.importorskip("PIL.Image")
    pixels = coloured(np.array([[0.0, 1.0, np.nan]]), 0, 1, "viridis")
    assert pixels[0, 0].tolist() == [0x44, 0x01, 0x54, 255]
    assert pixels[0, 1].tolist() == [0xFD, 0xE7, 0x25, 255]
    assert pixels[0, 2, 3] == 0
    read = image.open(BytesIO(b64decode(picture(pixels).split(",")[1])))
    np.testing.assert_array_equal(np.asarray(read), pixels)


def test_figures_leave_out_what_is_missing():
    marks = [Mark("line", [0, 1, 2], [0.0, float("nan"), 1.0]), Mark("points", [0, 1], [0.0, float("nan")])]
    figure = Figure("a", "A & B", "<d>", Axis("x", 0, 2), Axis("y", 0, 1), marks, Table(["x"], []))
    text = drawn(figure)
    assert "nan" not in text
    assert "A &amp; B" in text
    assert "&lt;d&gt;" in text
    assert text.count("<circle") == 1


def test_notebooks_show_the_summary(models):
    model = models["numbers"][0]
    shown = model._repr_mimebundle_()["text/html"]
    assert "rows were left out" in shown
    assert "sk-" in shown
    assert model._repr_html_() is not None
    assert "What the fit did" not in type(model)()._repr_mimebundle_()["text/html"]
