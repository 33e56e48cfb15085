"""The pictures of `make demo`."""

from __future__ import annotations

import numpy as np
import pytest
from estimator_data import quick, small

from nearfield.demo_pictures import PICTURE, draw, intervals


@pytest.mark.parametrize(("encoding", "signs"), [("utf-8", "\u2588\u2573\u2591"), ("ascii", "oX:"), (None, "oX:")])
def test_each_column_has_an_interval_and_what_was_observed(encoding, signs):
    rng = np.random.default_rng(0)
    middle, half = np.sort(rng.normal(size=40)), rng.uniform(0.2, 0.6, 40)
    y = middle + 0.4 * rng.normal(size=40)
    low, high = middle - half, middle + half
    *picture, _, legend = intervals(y, low, high, encoding).splitlines()
    inside, outside = signs[:2]
    columns = list(zip(*(line[8:] for line in picture), strict=True))
    assert len(columns) == 40
    for held, column in zip((low <= y) & (y <= high), columns, strict=True):
        assert column.count(inside if held else outside) == 1
        assert column.count(outside if held else inside) == 0
        assert set(column) <= {*signs, " "}
    assert f"({int(((y < low) | (y > high)).sum())} of 40 rows)" in legend
    assert "\n".join(picture).isascii() == (encoding != "utf-8")


def test_the_picture_replaces_its_own_and_no_other(tmp_path):
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    X, y = small(60)
    model = quick().fit(X, y)
    assert str(tmp_path / PICTURE) in draw(model, X, y, tmp_path)
    first = (tmp_path / PICTURE).read_bytes()
    assert first.startswith(b"\x89PNG")
    assert draw(model, X, y, tmp_path).endswith(str(tmp_path / PICTURE))
    assert [path.name for path in tmp_path.iterdir()] == [PICTURE]
    (tmp_path / PICTURE).write_text("a picture of mine")
    said = draw(model, X, y, tmp_path)
    assert (tmp_path / PICTURE).read_text() == "a picture of mine"
    assert "nearfield-demo-2.png" in said
    assert "stays" in said
    assert (tmp_path / "nearfield-demo-2.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path):
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    X, y = small(40)
    assert "could not be written" in draw(quick().fit(X, y), X, y, tmp_path / "nowhere")
