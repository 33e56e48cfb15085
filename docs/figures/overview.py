"""Draws the figure at the top of the README, from data made here: a number, a class, and a map.

python docs/figures/overview.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from sklearn.datasets import make_moons

from nearfield import GPClassifier, GPRegressor
from nearfield.colours import BLUE, GREY, ORANGE, SEQUENTIAL

HERE = Path(__file__).resolve().parent
BETWEEN = LinearSegmentedColormap.from_list("between", [ORANGE, "white", BLUE])


def number(ax: Any) -> None:
    """Noise that grows to the right, and a gap: intervals follow both."""
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.uniform(0, 3.3, 150), rng.uniform(5.6, 10, 250)])
    y = np.sin(1.2 * x) + 0.04 * (1 + x) * rng.standard_normal(len(x))
    model = GPRegressor(random_state=0).fit(x[:, None], y)
    grid = np.linspace(0, 10, 400)[:, None]
    for coverage, shade in ((0.9, 0.18), (0.5, 0.3)):
        low, high = model.predict_interval(grid, coverage=coverage)
        label = f"{100 * coverage:.0f} % interval"
        ax.fill_between(grid[:, 0], low, high, color=BLUE, alpha=shade, linewidth=0, label=label)
    ax.plot(grid, model.predict(grid), color=BLUE, label="prediction")
    ax.scatter(x, y, s=4, color=GREY, linewidth=0)
    ax.set(title="a number, with intervals that hold", xlim=(0, 10), ylim=(-2.4, 2.9))
    ax.legend(loc="upper left", frameon=False, fontsize=8)


def label(ax: Any) -> None:
    """Probabilities of two classes."""
    X, y = make_moons(300, noise=0.25, random_state=0)
    model = GPClassifier(random_state=0).fit(X, y)
    across, up = np.meshgrid(np.linspace(-1.9, 2.9, 160), np.linspace(-1.5, 2.0, 130))
    p = model.predict_proba(np.column_stack([across.ravel(), up.ravel()]))[:, 1].reshape(across.shape)
    levels = ax.contourf(across, up, p, np.linspace(0, 1, 11), cmap=BETWEEN, vmin=-0.4, vmax=1.4)  # paler than points
    ax.figure.colorbar(levels, ax=ax, shrink=0.85, ticks=[0, 0.5, 1])
    ax.scatter(*X.T, s=12, c=np.where(y == 1, BLUE, ORANGE), edgecolor="white", linewidth=0.4)
    ax.set(title="a class, with probabilities that hold")


def place(ax: Any) -> None:
    """A map from scattered measurements, paler where nothing is known."""
    rng = np.random.default_rng(3)
    waves, phases = rng.normal(0, 1.0, (60, 2)), rng.uniform(0, 2 * np.pi, 60)
    places = rng.uniform(0, 10, (420, 2))
    places = places[np.hypot(*(places - [10.5, 10]).T) > 5.2]
    y = np.cos(places @ waves.T + phases).sum(axis=1) + 0.3 * rng.standard_normal(len(places))
    model = GPRegressor(coordinates=[0, 1], random_state=0).fit(places, y)
    side = np.linspace(0, 10, 130)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    mean, known = model.predict(grid).reshape(130, 130), model.support(grid).reshape(130, 130)
    shown = {"origin": "lower", "extent": (0, 10, 0, 10), "aspect": "auto", "alpha": 0.15 + 0.85 * known}
    image = ax.imshow(mean, cmap=SEQUENTIAL, **shown)
    ax.figure.colorbar(image, ax=ax, shrink=0.85)
    ax.scatter(*places.T, s=2, color="black", linewidth=0)
    ax.set(title="a map, pale where little is known")


def main() -> None:
    figure, axes = plt.subplots(1, 3, figsize=(11.5, 3.4), layout="constrained")
    for draw, ax in zip((number, label, place), axes, strict=True):
        draw(ax)
        ax.set(xticks=[], yticks=[])
        ax.title.set_fontsize(11)
    figure.savefig(HERE / "overview.png", dpi=90)  # on white, so that it can be read on any page
    plt.close(figure)


if __name__ == "__main__":
    main()
