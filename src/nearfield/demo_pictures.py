"""The pictures of `make demo`: intervals of new rows as text, and predictions against observations as a PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nearfield.atomic import replacing
from nearfield.colours import BLUE, GREY, ORANGE

PICTURE = "nearfield-demo.png"
SOFTWARE = "nearfield demo"
"""What the PNG says of who made it, so that the demo replaces its own picture and no other."""

_HEAD = 2000  # bytes of a PNG that say who made it
_BLOCKS = {
    "interval": "\u2591",
    "inside": "\u2588",
    "outside": "\u2573",
    "corner": "\u2514",
    "side": "\u2502",
    "floor": "\u2500",
}
_ASCII = {"interval": ":", "inside": "o", "outside": "X", "corner": "+", "side": "|", "floor": "-"}


def intervals(y: np.ndarray, low: np.ndarray, high: np.ndarray, encoding: str | None, height: int = 17) -> str:
    """Intervals of rows (n,) side by side, as text, and where in them the observed values y are; blocks, or ASCII where
    the encoding has none."""
    signs = _BLOCKS if _has(encoding, "".join(_BLOCKS.values())) else _ASCII
    inside = (low <= y) & (y <= high)
    ends = float(min(low.min(), y.min())), float(max(high.max(), y.max()))
    step = (ends[1] - ends[0]) / (height - 1) or 1.0
    place = np.rint((np.stack([low, y, high]) - ends[0]) / step).astype(int)
    lines = []
    for row in range(height - 1, -1, -1):
        label = f"{ends[0] + row * step:6.2f} " if row % 4 == 0 else " " * 7
        cells = [
            signs["inside" if held else "outside"] if row == at else signs["interval"] if first <= row <= last else " "
            for first, at, last, held in zip(*place.tolist(), inside.tolist(), strict=True)
        ]
        lines.append(label + signs["side"] + "".join(cells))
    lines.append(" " * 7 + signs["corner"] + signs["floor"] * len(y))
    lines.append(
        " " * 8 + f"{signs['interval']} 90 % interval   {signs['inside']} observed, inside of it   "
        f"{signs['outside']} observed, outside ({int((~inside).sum())} of {len(y)} rows)"
    )
    return "\n".join(lines)


def _has(encoding: str | None, signs: str) -> bool:
    try:
        signs.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def draw(model: Any, X: np.ndarray, y: np.ndarray, folder: Path) -> str:
    """Draw predictions and coverage of new rows as a PNG in the folder; what is to be said of it, also if it failed."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        return "For a picture of it: pip install 'nearfield[plots]', and run this again."
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from nearfield.plots import CoverageDisplay

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    mean = model.predict(X)
    low, high = model.predict_interval(X, coverage=0.9)
    inside = (low <= y) & (y <= high)
    for held, colour, label in ((inside, BLUE, "inside"), (~inside, ORANGE, "outside")):
        ends = np.stack([mean - low, high - mean])[:, held]
        style = {"fmt": ".", "color": colour, "ecolor": colour, "elinewidth": 0.8, "markersize": 4, "alpha": 0.55}
        left.errorbar(y[held], mean[held], ends, label=f"{int(held.sum())} {label} of 90 % intervals", **style)
    left.axline((float(y.mean()), float(y.mean())), slope=1, color=GREY, linestyle="--", linewidth=1)
    left.set(xlabel="observed distance, metres", ylabel="predicted distance, metres", title=f"{len(y)} new rows")
    left.legend(frameon=False, loc="upper left")
    CoverageDisplay.from_estimator(model, X, y, name=f"{len(y)} new rows", ax=right)
    right.set(title="Do intervals hold what they promise?")
    path = _free(folder)
    try:
        with replacing(path, "picture") as file:
            figure.savefig(file, format="png", dpi=110, metadata={"Software": SOFTWARE})
    except OSError as error:
        return f"The picture could not be written: {error}"
    finally:
        plt.close(figure)
    kept = "" if path.name == PICTURE else f" ({PICTURE}, which is there, is not of this demo and stays)"
    return f"A picture of it: {path}{kept}"


def _free(folder: Path) -> Path:
    """A name that is not taken, or only by an earlier picture of the demo."""
    number, path = 1, folder / PICTURE
    while path.exists() and not _is_ours(path):
        number += 1
        path = folder / PICTURE.replace(".png", f"-{number}.png")
    return path


def _is_ours(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return SOFTWARE.encode() in file.read(_HEAD)
    except OSError:
        return False
