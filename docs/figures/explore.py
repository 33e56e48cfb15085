"""Takes the picture of docs/guide/explore.md: a model of invented flats in Chromium, driven by Selenium.

python docs/figures/explore.py
"""

from __future__ import annotations

import base64
import shutil
import tempfile
import threading
from pathlib import Path

import numpy as np
import pandas as pd
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from nearfield import GPRegressor
from nearfield.explore import Explorer, Page

OUT = Path(__file__).resolve().parent / "explore.png"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
WIDTH = 1400


def flats(n: int = 900) -> tuple[pd.DataFrame, pd.Series]:
    """Flats (n, 6) and their rents."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"area": np.round(np.exp(rng.normal(4, 0.5, n)), 1), "rooms": rng.integers(1, 7, n) * 1.0})
    table["town"] = rng.choice(["Aachen", "Bonn", "Köln", "Trier"], n)
    table["balcony"] = rng.random(n) < 0.4
    table["built"] = rng.integers(1890, 2024, n)
    table["let"] = pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    days = (table["let"] - table["let"].min()).dt.days
    rent = 9 * table["area"] ** 0.9 + 20 * table["rooms"] + 150 * (table["town"] == "Köln") + 60 * table["balcony"]
    rent += 0.15 * days + 120 * np.abs(table["built"] - 1960) / 60 + rng.normal(0, 40, n)
    table.loc[::9, "rooms"] = None
    return table, rent.rename("rent")


def main() -> None:
    explorer = Explorer(GPRegressor(random_state=0).fit(*flats()), "flats")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    with tempfile.TemporaryDirectory() as profile, Page(explorer) as page:
        threading.Thread(target=page.serve_forever, daemon=True).start()
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={WIDTH},1000"):
            options.add_argument(flag)
        with webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver"))) as driver:
            driver.get(page.address)
            done = "return document.body.dataset.settled"
            WebDriverWait(driver, 60).until(lambda one: one.execute_script(done) == "true")
            height = driver.execute_script("return document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 0.62}
            asked = {"format": "png", "captureBeyondViewport": True, "clip": clip}
            shot = driver.execute_cdp_cmd("Page.captureScreenshot", asked)
            OUT.write_bytes(base64.b64decode(shot["data"]))
        page.shutdown()
    print(f"{OUT}: {OUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
