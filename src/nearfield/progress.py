"""Progress bars: what takes time, and how far it is. A bar that is done ends at 100 %, however early its work settled.

They are shown on terminals only, on standard error, and only of work that takes longer than a moment: most fits of
small tables show none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tqdm import tqdm

_DELAY = 1.0  # seconds of work before its bar appears
_EVERY = 0.2  # seconds between two pictures of it
_SHARE = "{desc}: {percentage:3.0f}%|{bar:30}| {elapsed}{postfix}"
_COUNT = "{desc}: {percentage:3.0f}%|{bar:30}| {n_fmt}/{total_fmt} {unit} {elapsed}<{remaining}{postfix}"


_Item = TypeVar("_Item")


class Bar:
    """How far one piece of work is."""

    def __init__(self, shown: Any) -> None:
        self._shown = shown

    def add(self, more: float) -> None:
        """So much more is done; never beyond the total."""
        self.reach(self._shown.n + more)

    def reach(self, done: float) -> None:
        """So much is done in all; a bar does not go back."""
        total = self._shown.total
        done = done if total is None else min(done, total)
        if done > self._shown.n:
            self._shown.update(done - self._shown.n)

    def note(self, text: str) -> None:
        """A few words behind the bar."""
        self._shown.set_postfix_str(text, refresh=False)


@dataclass(frozen=True)
class Bars:
    """Makes bars. verbose: None shows them where standard error is a terminal, True always, False never."""

    verbose: bool | None = None

    @contextmanager
    def bar(self, what: str, total: float | None, unit: str = "", initial: float = 0) -> Iterator[Bar]:
        """A bar for the work inside, counted in units where they have a name, else as a share of the total.

        total: None where nobody knows it.
        """
        disable = None if self.verbose is None else not self.verbose
        form = None if total is None else _COUNT if unit else _SHARE
        with tqdm(
            desc=what, total=total, initial=initial, unit=unit, unit_scale=bool(unit), bar_format=form, disable=disable,
            delay=_DELAY, mininterval=_EVERY, miniters=0, dynamic_ncols=True,
        ) as shown:  # fmt: skip
            own = Bar(shown)
            yield own
            if total is not None:
                own.reach(total)

    def each(self, what: str, items: Sequence[_Item]) -> Iterator[_Item]:
        """The items, with a bar that counts those done; none for a single one, which may be asked for often."""
        if len(items) == 1:
            yield from items
            return
        with self.bar(what, len(items)) as bar:
            for item in items:
                yield item
                bar.add(1)


HIDDEN = Bars(verbose=False)
"""None are shown."""
