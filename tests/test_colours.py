"""The palette: seen on both grounds, and by people who see no red or no green."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from nearfield.colours import ANCHORS, ROLES, style_sheet

GROUNDS = {"light": "#ffffff", "dark": "#14171a"}
SEEN = {  # linear red, green and blue without one kind of cones (Machado, Oliveira and Fernandes, 2009)
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.9505, 1, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("ground", GROUNDS)
def test_colours_stand_out_from_the_ground(ground):
    """Graphics need a contrast of 3 to 1 (WCAG 1.4.11)."""
    back = TO_XYZ[1] @ linear(GROUNDS[ground])
    for role, colour in ROLES.items():
        own = TO_XYZ[1] @ linear(getattr(colour, ground))
        assert (max(own, back) + 0.05) / (min(own, back) + 0.05) >= 3, role


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("seen", SEEN)
def test_colours_differ_for_everybody(ground, seen):
    found = {role: lab(np.array(SEEN[seen]) @ linear(getattr(c, ground))) for role, c in ROLES.items() if role != "ref"}
    for a, b in itertools.combinations(found, 2):
        assert np.linalg.norm(found[a] - found[b]) > 10, (a, b)


def test_pages_and_plots_have_the_same():
    matplotlib = pytest.importorskip("matplotlib", reason="the colour maps are those of matplotlib")
    light, dark = style_sheet().split("@media")
    for role, colour in ROLES.items():
        assert f"--{role}: {colour.light};" in light
        assert f"--{role}: {colour.dark};" in dark
    for name, anchors in ANCHORS.items():
        colours, ends = matplotlib.colormaps[name], anchors.split()
        for place, anchor in ((0.0, ends[0]), (1.0, ends[-1])):
            near = np.array(colours(place)[:3]) * 255 - [int(anchor[i : i + 2], 16) for i in (0, 2, 4)]
            assert np.abs(near).max() < 64, name
