"""The page to play with a model: what it answers is what the estimator says; and a browser that moves its sliders."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from functools import cache

import numpy as np
import pandas as pd
import pytest
from cli_runs import failed, runner
from estimator_data import counted, labelled, quick, quick_classifier, quick_counts, small
from scipy.integrate import trapezoid

from nearfield import GPRegressor
from nearfield.explore import ADDRESS, Explorer, Page
from nearfield.explore.fields import Refused

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def house_table(n=200):
    """Numbers with gaps, a flag, a date, text with gaps and text of many levels; and rents."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"area": rng.uniform(20, 150, n).round(1), "rooms": rng.integers(1, 7, n).astype(float)})
    table["town"] = rng.choice(["Bonn", "Trier", None], n)
    table["garden"] = rng.random(n) < 0.4
    table["street"] = [f"Street {number}" for number in rng.integers(0, 90, n)]
    table["sold"] = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 500, n), unit="D")
    rent = 6 * table["area"] + 40 * table["rooms"] + 50 * table["garden"] + rng.normal(0, 30, n)
    table.loc[::7, "rooms"] = None
    return table, rent.rename("rent")


@cache
def model_of(kind):
    X, y = small(150)
    if kind == "number":
        return quick(k=20).fit(X, y)
    if kind == "student_t":
        return quick(likelihood="student_t", k=20).fit(X, y[:, None])
    if kind == "outputs":
        Y = np.stack([y, -y + X[:, 1]], axis=1)
        Y[::5, 1] = np.nan
        return quick(k=20).fit(X, Y)
    if kind == "noise":
        return quick(k=20).fit(X, y, noise_variance=np.full(150, 0.01))
    if kind == "lonlat":
        places = pd.DataFrame({"lon": 10 + X[:, 0], "lat": 50 + X[:, 1]})
        return quick(k=20, coordinates="lonlat").fit(places, y)
    if kind == "table":
        return quick(k=20).fit(*house_table())
    if kind == "classes":
        inputs, labels = labelled(150, 3)
        return quick_classifier(k=20).fit(inputs, np.array(["red", "green", "blue"])[labels])
    if kind == "two classes":
        return quick_classifier(k=20).fit(*labelled(150))
    inputs, counts, _ = counted(150)
    if kind == "binomial":
        return quick_counts(likelihood="binomial", k=20).fit(inputs, np.minimum(counts, 9), trials=np.full(150, 9))
    return quick_counts(k=20).fit(inputs, counts, exposure=np.linspace(1, 4, 150))


@cache
def explorer_of(kind):
    return Explorer(model_of(kind))


def started(kind):
    """The explorer, what its page sends at first, and the same row as users pass it to the estimator."""
    explorer = explorer_of(kind)
    start = explorer.described()["start"]
    row = pd.DataFrame([start["values"]])
    if "sold" in row:
        row["sold"] = pd.to_datetime(row["sold"])
    X = row if hasattr(model_of(kind), "feature_names_in_") else row.to_numpy(dtype=float)
    return explorer, {"values": start["values"], "given": start["given"]}, X


NUMBERS = ["number", "student_t", "outputs", "lonlat", "table", "noise"]
COUNTS = ["counts", "binomial"]


# --- answers --------------------------------------------------------------------------------------------------------


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


# --- the server -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page():
    with Page(explorer_of("table")) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked_of(page, method, path, content=None, **headers):
    """Status, headers and content of an answer."""
    connection = http.client.HTTPConnection(ADDRESS, page.server_port, timeout=60)
    body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
    given = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection.request(method, path, body, given if body is not None or headers else {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    json_ = answer.getheader("Content-Type").startswith("application/json")
    return answer.status, answer.headers, json.loads(content) if json_ else content.decode()


def test_the_answers_of_the_server_are_those_of_the_explorer(page):
    explorer, asked, _ = started("table")
    assert asked_of(page, "GET", "/api/model")[2] == explorer.described()
    for path, answer in [
        ("predict", explorer.predicted), ("effects", explorer.effects), ("neighbours", explorer.neighbours)
    ]:  # fmt: skip
        status, headers, found = asked_of(page, "POST", f"/api/{path}", asked)
        assert status == 200
        assert found == answer(asked)
        assert headers["Cache-Control"] == "no-store"
    assert set(asked_of(page, "GET", "/api/row")[2]) == {"row", "given", "values", "shown"}


def test_the_page_needs_nothing_else(page):
    status, headers, text = asked_of(page, "GET", "/")
    assert status == 200
    assert "This page shows training rows" in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "http" not in text
    for name in ("explore.css", "explore.js", "form.js", "draw.js"):
        status, _, content = asked_of(page, "GET", f"/{name}")
        assert status == 200
        assert content.replace("http://www.w3.org/2000/svg", "").count("http") == 0
    assert "--one: #0072b2" in asked_of(page, "GET", "/explore.css")[2]  # the colours of reports


def test_it_listens_to_this_computer_alone(page):
    assert page.socket.getsockname()[0] == "127.0.0.1"
    assert page.address == f"http://127.0.0.1:{page.server_port}/"


@pytest.mark.parametrize("path", ["/", "/api/model", "/api/row", "/explore.js"])
def test_foreign_hosts_and_origins_are_refused(page, path):
    port = page.server_port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
        status, _, found = asked_of(page, "GET", path, Host=host)
        assert status == 403
        assert "not this server" in found["error"]
    for origin in ("http://evil.example", "https://evil.example", "null", f"http://127.0.0.1:{port + 1}"):
        status, _, found = asked_of(page, "GET", path, Origin=origin)
        assert status == 403
        assert "refused" in found["error"]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"LOCALHOST:{port}"):
        assert asked_of(page, "GET", path, Host=host)[0] == 200
    assert asked_of(page, "GET", path, Origin=f"http://127.0.0.1:{port}")[0] == 200


def test_bad_requests_get_an_error_that_helps(page):
    _, asked, _ = started("table")
    for method, path, content, headers, status, says in [
        ("GET", "/nothing", None, {}, 404, "nothing at '/nothing'"),
        ("GET", "/../__init__.py", None, {}, 404, "nothing at"),
        ("POST", "/api/model", {}, {}, 404, "for POST"),
        ("GET", "/api/predict", None, {}, 404, "for GET"),
        ("PUT", "/api/predict", {}, {}, 501, "PUT"),
        ("POST", "/api/predict", b"values=1", {}, 400, "not JSON"),
        ("POST", "/api/predict", b"[" * 100_000, {}, 400, "not JSON"),
        ("POST", "/api/predict", b"\xff\xfe", {}, 400, "not JSON"),
        ("POST", "/api/predict", b"{}", {"Content_Type": "text/plain"}, 415, "application/json"),
        ("POST", "/api/predict", b"{}", {"Content_Length": "99999999"}, 413, "at most"),
        ("POST", "/api/predict", asked, {"Origin": "http://evil.example"}, 403, "refused"),
        ("POST", "/api/predict", {"values": {**asked["values"], "area": float("nan")}}, {}, 400, "'area' has nan"),
        ("POST", "/api/effects", {**asked, "columns": ["aera"]}, {}, 400, "Did you mean 'area'?"),
    ]:
        found = asked_of(page, method, path, content, **headers)
        assert found[0] == status, found
        assert says in found[2]["error"]
        assert "Traceback" not in str(found[2])
    assert asked_of(page, "POST", "/api/predict", {**asked, "values": {**asked["values"], "area": "x"}})[2] == {
        "error": "Column 'area' has 'x'; a number, like 3.5, is expected.",
        "column": "area",
    }


def test_a_fault_of_ours_is_told_without_a_traceback(page, monkeypatch):
    monkeypatch.setattr(page.explorer, "random_row", lambda: 1 / 0)
    status, _, found = asked_of(page, "GET", "/api/row")
    assert status == 500
    assert found["error"].startswith("ZeroDivisionError: division by zero.")


# --- the command ----------------------------------------------------------------------------------------------------


def served(path):
    """A process that serves a model, and the address it printed."""
    code = "import sys; from nearfield.entry import main; sys.exit(main())"
    command = [sys.executable, "-u", "-c", code, "explore", str(path), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    return process, process.stdout.readline().split()[-1]


def test_the_command_serves_until_interrupted(tmp_path):
    model_of("table").save(tmp_path / "rent.nearfield")
    process, address = served(tmp_path / "rent.nearfield")
    try:
        connection = http.client.HTTPConnection(address.split("/")[2], timeout=60)
        connection.request("GET", "/api/model")
        assert json.loads(connection.getresponse().read())["name"] == "rent"
    finally:
        process.send_signal(signal.SIGINT)
    out, err = process.stdout.read(), process.stderr.read()
    assert process.wait(60) == 0
    assert err == ""
    assert out.splitlines() == ["The page shows training rows. Stop with Ctrl-C.", "", "Stopped."]


def test_mistakes_of_the_command_are_named(tmp_path, capsys, page):
    run, path = runner(capsys), tmp_path / "rent.nearfield"
    failed(run("explore", path), "does not exist")
    model_of("table").save(path)
    failed(run("explore", path, "--port", "70000"), "--port is 70000")
    failed(run("explore", path, "--no-browser", "--port", page.server_port), "cannot be used", "choose another")


def test_the_method_of_the_estimators_serves_too(monkeypatch, capsys):
    opened = threading.Event()

    def interrupted(self):
        assert opened.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(Page, "serve_forever", interrupted)
    monkeypatch.setattr("webbrowser.open", lambda address: opened.set())
    model_of("number").explore()
    assert capsys.readouterr().out.startswith(f"y is at http://{ADDRESS}:")


# --- in a browser ---------------------------------------------------------------------------------------------------

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """Chromium, driven by Selenium; skipped, with what is missing, where there is none."""
    selenium = pytest.importorskip("selenium.webdriver", reason="no Selenium: pip install selenium")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    chromedriver = shutil.which("chromedriver")
    missing = [name for name, path in (("Chromium", browser), ("its chromedriver", chromedriver)) if path is None]
    if missing:
        pytest.skip(f"no {' and '.join(missing)} on the path: on Debian, apt install chromium chromium-driver")
    from selenium.webdriver.chrome.service import Service

    options = selenium.ChromeOptions()
    options.binary_location = browser
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with selenium.Chrome(options=options, service=Service(chromedriver)) as found:
        yield found


def settled(driver):
    """Wait until what is shown is that of the form."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 60).until(lambda d: d.execute_script("return document.body.dataset.settled") == "true")


def shown_mean(driver):
    return float(driver.find_element("css selector", "#numbers tbody td").text.replace("−", "-").replace(",", ""))


def field_of(driver, name):
    (label,) = [one for one in driver.find_elements("css selector", ".field > label") if one.text == name]
    return driver.find_element("id", label.get_attribute("for"))


def test_a_slider_and_a_select_move_the_prediction(driver, page):
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    model, (_, _, row) = model_of("table"), started("table")
    driver.get(page.address)
    settled(driver)
    assert shown_mean(driver) == pytest.approx(model.predict(row)[0], rel=1e-3)
    before = driver.find_element("id", "says").text
    slider = driver.find_element("css selector", "input[aria-label='area, slider']")
    slider.send_keys(Keys.HOME)  # the keyboard moves it
    settled(driver)
    low = explorer_of("table").described()["columns"][0]["low"]
    assert float(field_of(driver, "area").get_attribute("value")) == low
    row = row.assign(area=low)
    assert shown_mean(driver) == pytest.approx(model.predict(row)[0], rel=1e-3)
    assert driver.find_element("id", "says").text != before
    town = "Bonn" if row["town"][0] == "Trier" else "Trier"
    Select(field_of(driver, "town")).select_by_value(town)
    Select(field_of(driver, "garden")).select_by_value(str(not row["garden"][0]).lower())
    settled(driver)
    row = row.assign(town=town, garden=~row["garden"])
    assert shown_mean(driver) == pytest.approx(model.predict(row)[0], rel=1e-3)
    assert len(driver.find_elements("css selector", "#effects svg[role=img] title")) == 6
    assert driver.find_elements("css selector", "#near tbody tr")


def test_what_is_wrong_is_told_at_its_field(driver, page):
    driver.get(page.address)
    settled(driver)
    field = field_of(driver, "area")
    field.clear()
    field.send_keys("abc")
    settled(driver)
    assert field.get_attribute("aria-invalid") == "true"
    told = driver.find_element("id", field.get_attribute("aria-describedby"))
    assert told.text == "Column 'area' has 'abc'; a number, like 3.5, is expected."
    driver.find_element("id", "reset").click()
    settled(driver)
    assert field.get_attribute("aria-invalid") is None
    assert not driver.find_element("id", "failed").is_displayed()
    logged = [entry for entry in driver.get_log("browser") if "400 (Bad Request)" not in entry["message"]]
    assert logged == []
