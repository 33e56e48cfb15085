"""Figures as SVG that stands in a page: colours are variables of the page, so that they follow its scheme."""

from __future__ import annotations

import base64
import itertools
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from nearfield.colours import ANCHORS
from nearfield.diagnostics.slices import short, shown_day

WIDTH, HEIGHT = 360, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 44
_LETTER = 6.2  # about how wide a letter of a tick is
_MOST_LEFT = 0.6 * WIDTH
_TURNED, _SINE = -35, 0.58  # degrees of labels that would not fit side by side
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200)  # between ticks of dates


@dataclass(frozen=True)
class Axis:
    """A name, the range that is drawn, and ticks with labels; made from the range if there are none.

    date: numbers are days since 1970. levels: ticks are names of which none may be left out.
    """

    label: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]] | None = None
    date: bool = False
    levels: bool = False

    def marks(self) -> list[tuple[float, str]]:
        """Ticks inside of the range."""
        if self.ticks is not None:
            return list(self.ticks)
        return dates(self.low, self.high) if self.date else [(v, short(v)) for v in nice(self.low, self.high)]


@dataclass(frozen=True)
class Mark:
    """One thing that is drawn: line, points, bars, band, errors, rule (a line across) or image.

    x, y, low, high: its numbers; low of coloured points how strong they are. role: which colour, see the style sheet.
    label: for the legend.
    """

    kind: str
    x: Sequence[float]
    y: Sequence[float] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    role: str = "one"
    label: str = ""
    colours: Sequence[str] = ()
    image: str = ""


@dataclass(frozen=True)
class Table:
    """The numbers behind a figure."""

    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Figure:
    """A figure: title, what it shows in a sentence for those who do not see it, what it tells, axes, marks, numbers."""

    name: str
    title: str
    description: str
    x: Axis
    y: Axis
    marks: list[Mark]
    table: Table
    says: list[str] = field(default_factory=list)
    note: str = ""
    height: int = HEIGHT
    left: int = _LEFT  # at least
    bar: tuple[str, float, float] | None = None  # a colour bar: image, lowest and highest value
    aspect: float | None = None


def nice(low: float, high: float, most: int = 6) -> list[float]:
    """Round values between low and high, ends included."""
    span = high - low
    if not np.isfinite(span) or span <= 0:
        return [low]
    raw = span / most
    power = 10.0 ** np.floor(np.log10(raw))
    step = next(step for step in (1, 2, 2.5, 5, 10) if step * power >= raw * 0.999) * power
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return [float(round(i * step, 12)) for i in np.arange(first, last + 1)]


def dates(low: float, high: float, most: int = 5) -> list[tuple[float, str]]:
    """Days since 1970 between low and high with their names: first days of months, or round numbers of days."""
    months = next((step for step in _MONTHS if (high - low) / (30.4 * step) <= most), _MONTHS[-1])
    if high - low < 60 or abs(low) > 1e6 or abs(high) > 1e6:
        return [(value, shown_day(value)) for value in nice(low, high, most)]
    first = np.datetime64(int(low), "D").astype("datetime64[Y]").astype("datetime64[M]")
    every = np.arange(first, np.datetime64(int(high) + 1, "D").astype("datetime64[M]") + 1, months)
    days = every.astype("datetime64[D]").astype(np.int64).tolist()
    return [(float(day), str(month)) for day, month in zip(days, every, strict=True) if low <= day <= high]


def padded(values: Any, zero: bool = False, share: float = 0.05) -> tuple[float, float]:
    """A range for values, a little wider than they are; from zero on, if asked."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not known.size:
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    low = min(low, 0.0) if zero else low
    if low == high:
        low, high = low - (0.5 if not zero else 0.0), high + 0.5
    by = share * (high - low)
    return (low if zero and low == 0 else low - by), high + by


def drawn(figure: Figure) -> str:
    """The SVG of a figure."""
    width, height, left = WIDTH, figure.height, _left(figure)
    right = _RIGHT + (58 if figure.bar else 0)
    if figure.aspect is not None:
        height = _shaped(figure, width - left - right)
    legend = [mark for mark in figure.marks if mark.label]
    top = _TOP + (16 * -(-len(legend) // 2) if legend else 0)
    box = (left, top, width - right, height + top - _TOP - _BOTTOM)
    scale = _Scale(figure.x, figure.y, box)
    turned = _turned(figure.x, scale)
    parts = [_frame(figure, scale, turned), f'<g clip-path="url(#clip-{figure.name})">']
    parts += [_drawn_mark(mark, scale) for mark in figure.marks]
    parts += ["</g>", _legend(legend)]
    if figure.bar:
        parts.append(_colour_bar(figure.bar, box))
    total = height + top - _TOP + (turned or 0)
    return (
        f'<svg viewBox="0 0 {width} {total}" role="img" aria-labelledby="t-{figure.name} d-{figure.name}">'
        f'<title id="t-{figure.name}">{escape(figure.title)}</title>'
        f'<desc id="d-{figure.name}">{escape(figure.description)}</desc>'
        f'<clipPath id="clip-{figure.name}"><rect x="{box[0]}" y="{box[1] - 2}" width="{box[2] - box[0]}" '
        f'height="{box[3] - box[1] + 4}"/></clipPath>{"".join(parts)}</svg>'
    )


def _left(figure: Figure) -> float:
    """Where the box begins: beside the labels of its ticks, and the name of the axis."""
    widest = max((len(label) for _, label in figure.y.marks()), default=0)
    return min(max(figure.left, _LETTER * widest + (24 if figure.y.label else 8)), _MOST_LEFT)


def _turned(axis: Axis, scale: _Scale) -> int | None:
    """How much room below the box labels of levels need that do not fit side by side; None where they do."""
    if not axis.levels or axis.ticks is None or len(axis.ticks) < 2:
        return None
    widest = _LETTER * max(len(label) for _, label in axis.ticks)
    apart = min(abs(scale.x(a) - scale.x(b)) for (a, _), (b, _) in itertools.pairwise(axis.ticks))
    return None if widest <= apart - 4 else round(_SINE * widest) - 4


def _shaped(figure: Figure, width: float) -> int:
    """The height at which both axes are as long as they are on the ground."""
    assert figure.aspect is not None
    ratio = figure.aspect * (figure.y.high - figure.y.low) / (figure.x.high - figure.x.low)
    return int(np.clip(width * ratio, 120, 520)) + _TOP + _BOTTOM


class _Scale:
    def __init__(self, x: Axis, y: Axis, box: tuple[float, float, float, float]) -> None:
        self.box, self._x, self._y = box, x, y

    def x(self, value: float) -> float:
        x0, _, x1, _ = self.box
        return round(x0 + (x1 - x0) * (value - self._x.low) / ((self._x.high - self._x.low) or 1.0), 1)

    def y(self, value: float) -> float:
        _, y0, _, y1 = self.box
        return round(y1 - (y1 - y0) * (value - self._y.low) / ((self._y.high - self._y.low) or 1.0), 1)


def _frame(figure: Figure, scale: _Scale, turned: int | None) -> str:
    x0, y0, x1, y1 = scale.box
    parts = []
    for value, label in figure.y.marks():
        y = scale.y(value)
        if y0 - 1 <= y <= y1 + 1:
            parts.append(f'<line class="grid" x1="{x0}" x2="{x1}" y1="{y}" y2="{y}"/>')
            parts.append(f'<text class="tick" x="{x0 - 5}" y="{y + 3.5}" text-anchor="end">{escape(label)}</text>')
    last = -1e9
    for value, label in figure.x.marks():
        x, half = scale.x(value), _LETTER / 2 * len(label)
        if turned is not None:
            place = f'transform="translate({x + 3} {y1 + 12}) rotate({_TURNED})"'
            parts.append(f'<text class="tick" {place} text-anchor="end">{escape(label)}</text>')
        elif x0 - 1 <= x <= x1 + 1 and x - half > last:
            parts.append(f'<line class="axis" x1="{x}" x2="{x}" y1="{y1}" y2="{y1 + 4}"/>')
            anchor = "end" if x + half > WIDTH else "middle"
            parts.append(f'<text class="tick" x="{x}" y="{y1 + 15}" text-anchor="{anchor}">{escape(label)}</text>')
            last = x + half + 3
    middle, across = (x0 + x1) / 2, (y0 + y1) / 2
    parts.append(f'<line class="axis" x1="{x0}" x2="{x1}" y1="{y1}" y2="{y1}"/>')
    below = f'x="{middle}" y="{y1 + 33 + (turned or 0)}"'
    parts.append(f'<text class="name" {below} text-anchor="middle">{escape(figure.x.label)}</text>')
    if figure.y.label:
        parts.append(
            f'<text class="name" transform="translate(11 {across}) rotate(-90)" text-anchor="middle">'
            f"{escape(figure.y.label)}</text>"
        )
    return "".join(parts)


def _drawn_mark(mark: Mark, scale: _Scale) -> str:
    return _KINDS[mark.kind](mark, scale)


def _line(mark: Mark, scale: _Scale) -> str:
    points = " ".join(f"{scale.x(x)},{scale.y(y)}" for x, y in zip(mark.x, mark.y, strict=True) if _finite(x, y))
    return f'<polyline class="line {mark.role}" points="{points}"/>'


def _points(mark: Mark, scale: _Scale) -> str:
    fills = mark.colours or [""] * len(mark.x)
    strength = mark.low or [1.0] * len(mark.x)
    size = "2.2" if len(mark.x) > 60 else "3.2"
    return "".join(
        f'<circle class="dot {mark.role}" cx="{scale.x(x)}" cy="{scale.y(y)}" r="{size}"'
        + (f' style="fill:{fill};fill-opacity:{share:.2f}"' if fill else "") + "/>"
        for x, y, fill, share in zip(mark.x, mark.y, fills, strength, strict=True) if _finite(x, y)
    )  # fmt: skip


def _bars(mark: Mark, scale: _Scale) -> str:
    """Upright: from x to high, up to y, from low or zero."""
    bottoms = mark.low or [0.0] * len(mark.x)
    parts = []
    for x, end, y, bottom in zip(mark.x, mark.high, mark.y, bottoms, strict=True):
        a, b, top, base = scale.x(x), scale.x(end), scale.y(max(y, bottom)), scale.y(min(y, bottom))
        parts.append(
            f'<rect class="bar {mark.role}" x="{a + 0.5:.1f}" y="{top}" width="{max(b - a - 1, 0.5):.1f}" '
            f'height="{max(base - top, 0):.1f}"/>'
        )
    return "".join(parts)


def _lying(mark: Mark, scale: _Scale) -> str:
    """Lying bars: from zero to x, at the height y."""
    zero = scale.x(0.0)
    return "".join(
        f'<rect class="bar {mark.role}" x="{min(zero, scale.x(x)):.1f}" y="{scale.y(y) - 6:.1f}" '
        f'width="{abs(scale.x(x) - zero):.1f}" height="12"/>'
        for x, y in zip(mark.x, mark.y, strict=True)
    )


def _band(mark: Mark, scale: _Scale) -> str:
    there = [(x, a, b) for x, a, b in zip(mark.x, mark.low, mark.high, strict=True) if _finite(a, b)]
    up = [f"{scale.x(x)},{scale.y(b)}" for x, _, b in there]
    down = [f"{scale.x(x)},{scale.y(a)}" for x, a, _ in reversed(there)]
    return f'<polygon class="band {mark.role}" points="{" ".join(up + down)}"/>'


def _errors(mark: Mark, scale: _Scale) -> str:
    return "".join(
        f'<line class="error {mark.role}" x1="{scale.x(x)}" x2="{scale.x(x)}" y1="{scale.y(a)}" y2="{scale.y(b)}"/>'
        for x, a, b in zip(mark.x, mark.low, mark.high, strict=True)
        if _finite(a, b)
    )


def _across(mark: Mark, scale: _Scale) -> str:
    """Lying error bars, from low to high at the heights y."""
    return "".join(
        f'<line class="error {mark.role}" x1="{scale.x(a)}" x2="{scale.x(b)}" y1="{scale.y(y)}" y2="{scale.y(y)}"/>'
        for y, a, b in zip(mark.y, mark.low, mark.high, strict=True)
        if _finite(a, b)
    )


def _rule(mark: Mark, scale: _Scale) -> str:
    """A line across the box: at the height y, or at x."""
    x0, y0, x1, y1 = scale.box
    upright = [f'x1="{scale.x(x)}" x2="{scale.x(x)}" y1="{y0}" y2="{y1}"' for x in mark.x]
    lying = [f'y1="{scale.y(y)}" y2="{scale.y(y)}" x1="{x0}" x2="{x1}"' for y in mark.y]
    return "".join(f'<line class="rule {mark.role}" {place}/>' for place in upright + lying)


def _image(mark: Mark, scale: _Scale) -> str:
    """A picture from x[0] to x[1] and y[0] to y[1]."""
    left, right, bottom, top = scale.x(mark.x[0]), scale.x(mark.x[1]), scale.y(mark.y[0]), scale.y(mark.y[1])
    return (
        f'<image x="{left}" y="{top}" width="{right - left:.1f}" height="{bottom - top:.1f}" '
        f'preserveAspectRatio="none" style="image-rendering:pixelated" href="{mark.image}"/>'
    )


def _cells(mark: Mark, scale: _Scale) -> str:
    """Squares around (x, y), as strong as high, 0 to 1, with texts: colours holds these."""
    side = abs(scale.x(1.0) - scale.x(0.0)), abs(scale.y(1.0) - scale.y(0.0))
    parts = []
    for x, y, share, text in zip(mark.x, mark.y, mark.high, mark.colours, strict=True):
        a, b = scale.x(x - 0.5), scale.y(y + 0.5)
        parts.append(
            f'<rect class="cell {mark.role}" x="{a}" y="{b}" width="{side[0]:.1f}" height="{side[1]:.1f}" '
            f'style="fill-opacity:{0.85 * share:.3f}"/>'
        )
        if text:
            strong = "on" if share > 0.55 else "off"
            place = f'x="{scale.x(x)}" y="{scale.y(y) + 3.5:.1f}"'
            parts.append(f'<text class="tick {strong}" {place} text-anchor="middle">{escape(text)}</text>')
    return "".join(parts)


_KINDS = {
    "line": _line, "points": _points, "bars": _bars, "lying": _lying, "band": _band, "errors": _errors,
    "across": _across, "rule": _rule, "image": _image, "cells": _cells,
}  # fmt: skip


def _finite(*values: float | None) -> bool:
    return all(value is not None and np.isfinite(value) for value in values)


def _legend(marks: list[Mark]) -> str:
    parts = []
    for place, mark in enumerate(marks):
        x, y = _LEFT + (WIDTH - _LEFT) / 2 * (place % 2), 10 + 16 * (place // 2)
        if mark.kind in ("band", "bars", "lying"):
            parts.append(f'<rect class="{mark.kind.replace("lying", "bar").replace("bars", "bar")} {mark.role}" '
                         f'x="{x}" y="{y - 5}" width="14" height="9"/>')  # fmt: skip
        elif mark.kind == "points":
            parts.append(f'<circle class="dot {mark.role} key" cx="{x + 7}" cy="{y}" r="3.2"/>')
        else:
            kind = "rule" if mark.kind == "rule" else "line"
            parts.append(f'<line class="{kind} {mark.role}" x1="{x}" x2="{x + 14}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{x + 18}" y="{y + 4}">{escape(mark.label)}</text>')
    return "".join(parts)


def _colour_bar(bar: tuple[str, float, float], box: tuple[float, float, float, float]) -> str:
    image, low, high = bar
    x0, y0, y1 = box[2] + 8, box[1], box[3]
    parts = [f'<image x="{x0}" y="{y0}" width="10" height="{y1 - y0}" preserveAspectRatio="none" href="{image}"/>']
    for value in nice(low, high, 5):
        y = y1 - (y1 - y0) * (value - low) / ((high - low) or 1.0)
        parts.append(f'<text class="tick" x="{x0 + 13}" y="{y + 3.5:.1f}">{escape(short(value))}</text>')
    return "".join(parts)


# --- pictures ---------------------------------------------------------------------------------------------------------


def coloured(values: np.ndarray, low: float, high: float, name: str) -> np.ndarray:
    """Colours (.., 4) of values as bytes: red, green, blue, and 0 for what is missing."""
    anchors = np.array([[int(one[i : i + 2], 16) for i in (0, 2, 4)] for one in ANCHORS[name].split()], dtype=float)
    known = np.isfinite(values)
    share = np.clip((np.where(known, values, low) - low) / ((high - low) or 1.0), 0.0, 1.0)
    along = np.linspace(0, 1, len(anchors))
    channels = [np.interp(share, along, anchors[:, c]) for c in range(3)]
    return np.stack([*channels, np.where(known, 255.0, 0.0)], axis=-1).round().astype(np.uint8)


def hexes(values: np.ndarray, low: float, high: float, name: str) -> list[str]:
    """The same as #rrggbb."""
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b, _ in coloured(values, low, high, name).tolist()]


def picture(pixels: np.ndarray) -> str:
    """Pixels (h, w, 4), the top row first, as the address of a PNG that is part of the page."""
    h, w, _ = pixels.shape
    lines = b"".join(b"\x00" + pixels[row].tobytes() for row in range(h))

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", w, h, 8, 6, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()
