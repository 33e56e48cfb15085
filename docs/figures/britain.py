"""Draws the figures of docs/guide/maps.md from the airborne magnetic survey of Britain, found through NEARFIELD_DATA.

python docs/figures/britain.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1]))

from experiments.data import load  # noqa: E402
from nearfield import GPRegressor  # noqa: E402
from nearfield.colours import DIVERGING, SEQUENTIAL, SPREAD  # noqa: E402

ROWS = 120_000
FRAME = (-7.0, 2.5, 49.5, 56.0)  # degrees: west, east, south, north
STEP = 0.025
ALTITUDE = 300.0  # metres


def grid() -> tuple[np.ndarray, tuple[int, int]]:
    """Places (n, 3) at one altitude, and the shape of the map."""
    lon, lat = np.meshgrid(np.arange(FRAME[0], FRAME[1], STEP), np.arange(FRAME[2], FRAME[3], STEP))
    return np.column_stack([lon.ravel(), lat.ravel(), np.full(lon.size, ALTITUDE)]), lon.shape


def panels(maps: list[np.ndarray], titles: list[str], styles: list[dict], path: Path) -> None:
    """Maps side by side, with a colour bar each."""
    figure, axes = plt.subplots(1, len(maps), figsize=(4.1 * len(maps), 4.6), layout="constrained")
    for ax, values, title, style in zip(axes, maps, titles, styles, strict=True):
        image = ax.imshow(values, origin="lower", extent=FRAME, aspect=1 / np.cos(np.radians(53)), **style)
        ax.set_title(title, fontsize=11)
        ax.set_xlabel("longitude, degrees")
        figure.colorbar(image, ax=ax, shrink=0.75)
    axes[0].set_ylabel("latitude, degrees")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> None:
    X, y = load("britain_magnetic")
    which = np.random.default_rng(0).permutation(len(X))[:ROWS]
    model = GPRegressor(coordinates={"lonlat": [0, 1]}, random_state=0).fit(X[which], y[which])
    print(model.summary_)
    places, shape = grid()
    mean, std = model.predict(places, return_std=True, uncertainty="latent")
    low, high = np.quantile(y, [0.01, 0.99])
    anomaly = {"cmap": f"{DIVERGING}_r", "vmin": -max(-low, high), "vmax": max(-low, high)}
    panels(
        [part.reshape(shape) for part in (mean, std, model.support(places))],
        ["anomaly, nT", "standard error, nT", "support"],
        [anomaly, {"cmap": SPREAD, "vmin": 0}, {"cmap": SEQUENTIAL, "vmin": 0, "vmax": 1}],
        HERE / "britain-map.png",
    )
    maps = model.sample_y(places, 3, random_state=0, uncertainty="latent")
    panels(
        [one.reshape(shape) for one in maps.T],
        [f"simulation {number}, nT" for number in (1, 2, 3)],
        [anomaly] * 3,
        HERE / "britain-simulations.png",
    )


if __name__ == "__main__":
    main()
