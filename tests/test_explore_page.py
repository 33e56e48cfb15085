"""The server of the page to play with a model, the command, and a browser that moves its sliders."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cli_runs import failed, runner
from explore_models import explorer_of, model_of, started

from nearfield.cli_saved import SavedModel
from nearfield.explore import ADDRESS, Explorer, Page

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


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
    """A process that serves a model, and the address it printed. It can be interrupted, also where tests cannot."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from nearfield.entry import main; sys.exit(main())"
    )
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
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
    out, err = process.stdout.read(), process.stderr.read()
    assert err == ""
    assert out.splitlines() == ["The page shows training rows. Stop with Ctrl-C.", "", "Stopped."]


@pytest.mark.parametrize("name", ["table_number", "table_classes", "table_counts", "table_outputs"])
def test_models_of_the_command_line(name):
    """Rows are counted from 1 there, and targets have names."""
    path = Path(__file__).parent / "files" / "v3" / f"{name}.nearfield"
    with SavedModel(path) as saved:
        explorer = Explorer(saved.load())
        own = saved.encoder.target
    told, start = explorer.described(), explorer.described()["start"]
    assert told["target"]["title"] == ", ".join(own.names)
    assert [column["name"] for column in told["columns"]] == saved.encoder.column_names
    assert [one["name"] for one in told["target"]["given"]] == list(own.given if own.predicts == "count" else [])
    place = explorer.rows.observations[[explorer.start]]
    assert start["row"] == explorer.rows.numbers(place)[0] + 1
    found = explorer.predicted({"values": start["values"], "given": start["given"]})
    assert [one["name"] for one in found.get("targets", [])] == ([] if own.predicts == "label" else own.names)


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
