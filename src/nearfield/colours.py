"""The colours of all figures, in reports, plots and pages: told apart by people who see no red or no green.

Near those of Okabe and Ito, with more contrast to the ground and to each other. A role has the same colour everywhere,
one on white and a lighter one on black. What is expected is grey, and dashed or a band, so that it is told by more
than its colour.
"""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    """On a light ground, and on a dark one."""

    light: str
    dark: str


ROLES = {
    "one": Colour("#0072b2", "#56b4e9"),  # the model
    "two": Colour("#b84300", "#f0894a"),  # what draws attention
    "three": Colour("#00785a", "#2fc49a"),
    "four": Colour("#a8327f", "#d79ac3"),
    "five": Colour("#a88400", "#f0e05a"),
    "six": Colour("#4294c2", "#a9dcf2"),
    "seven": Colour("#3f3f3f", "#d9d9d9"),
    "eight": Colour("#2c2a7d", "#7a7ae0"),
    "ref": Colour("#6e7781", "#98a2ac"),  # what is expected, or what others do
}

BLUE, ORANGE, GREEN, GREY = (ROLES[role].light for role in ("one", "two", "three", "ref"))
"""The same by what they are on white: the model, what draws attention, something else, and what is expected."""

SEQUENTIAL, SPREAD, DIVERGING = "viridis", "cividis", "PuOr"
"""Colour maps of matplotlib: of values, of uncertainties, and of what is above or below zero."""

ANCHORS = {
    SEQUENTIAL: "440154 482878 3e4a89 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
    SPREAD: "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838",
    DIVERGING: "b35806 e08214 fdb863 fee0b6 f7f7f7 d8daeb b2abd2 8073ac 542788",
}
"""The same maps as hexadecimal anchors, for pages that are made without matplotlib."""


def style_sheet() -> str:
    """The roles as variables of a page, by its scheme."""
    light, dark = (
        " ".join(f"--{role}: {getattr(colour, scheme)};" for role, colour in ROLES.items()) for scheme in Colour._fields
    )
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
