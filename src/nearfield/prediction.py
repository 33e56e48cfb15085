"""The predictor: model, rows, index, k and head; what is kept of a fit, and predicts in blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from nearfield.calibration import FREE, all_rows
from nearfield.model import Model
from nearfield.moments import Moments, joined, support
from nearfield.progress import HIDDEN, Bars
from nearfield.rows import Rows
from nearfield.scaling import Scaling
from nearfield.simulation import Joint, joint
from nearfield.sweep import Sweeper, can_be_whole
from nearfield.taper import Taper

_BLOCK_ROWS = 8192


class Head(Protocol):
    """From moments to predictions: a named tuple of arrays with one entry a row."""

    def predicted(self, moments: Moments, noise: np.ndarray) -> Any: ...

    def packed(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]: ...


@dataclass(frozen=True, eq=False)
class Predictor:
    """Predicts from the k nearest of the rows; from all of them where k leaves out no more than one.

    taper: how neighbours lose their weight towards the edge, so that predictions are continuous; None: they do not.
    leaves: how many boxes an approximate search looks into; None: it is exact.
    """

    model: Model
    rows: Rows
    k: int
    head: Any  # a Head
    taper: Taper | None = None
    leaves: int | None = None

    def __getstate__(self) -> dict[str, object]:
        kept = {name: value for name, value in vars(self).items() if name not in ("_sweeper", "_hard")}
        return kept  # the index is rebuilt

    @cached_property
    def _sweeper(self) -> Sweeper:
        return Sweeper(self.model, self.rows, taper=self.taper, leaves=self.leaves)

    @property
    def hard(self) -> Predictor:
        """The same with neighbours that come and go at once."""
        return self if self.taper is None else self._hard

    @cached_property
    def _hard(self) -> Predictor:
        other = replace(self, taper=None)
        vars(other)["_sweeper"] = self._sweeper.tapered(None)
        return other

    @property
    def sweeper(self) -> Sweeper:
        """The rows with their index, which is built when it is first needed."""
        return self._sweeper

    def predict(
        self,
        X: np.ndarray,
        scaling: Scaling,
        covariance: bool = False,
        known: np.ndarray | None = None,
        bars: Bars = HIDDEN,
    ) -> tuple[Any, np.ndarray | None]:
        """Predictions for new inputs (n, d) in the user's units, block by block: memory grows with the answer alone.

        covariance: also that between the latent functions of a row, (n, C, C), from the same sweep. known: noise
        variances (n, C) that the rows have beside the learned ones.
        """
        answer: Any = None
        between = np.empty((len(X), *(self.model.family.latents,) * 2)) if covariance else None
        for start in bars.each("predicting", range(0, len(X), _BLOCK_ROWS)):
            block = slice(start, start + _BLOCK_ROWS)
            moments = self._sweeper.new(scaling.apply(X[block]), self.k, covariance)
            part = self.head.predicted(moments, self.noise(None if known is None else known[block]))
            if answer is None:
                answer = type(part)(*(np.empty((len(X), *piece.shape[1:])) for piece in part))
            for whole, piece in zip(answer, part, strict=True):
                whole[block] = piece
            if between is not None:
                between[block] = moments.covariance
        return answer, between

    def noise(self, known: np.ndarray | None) -> np.ndarray:
        """Noise variances (C,), (1,) or, of rows of which some is known (n, C), (n, C)."""
        return self.model.noise if known is None else self.model.noise + known

    def support(self, X: np.ndarray, scaling: Scaling) -> np.ndarray:
        """How much is known, from 0 to 1, of the latent functions at new inputs (n, d): (n, C)."""
        most, blocks = self.model.family.most_unknown, range(0, len(X), _BLOCK_ROWS)
        parts = [support(self._sweeper.new(scaling.apply(X[b : b + _BLOCK_ROWS]), self.k), most) for b in blocks]
        return np.concatenate(parts)

    def moments(self, X: np.ndarray, scaling: Scaling) -> Moments:
        """Moments (n, C) of new inputs (n, d) in the user's units."""
        blocks = range(0, len(X), _BLOCK_ROWS)
        return joined([self._sweeper.new(scaling.apply(X[b : b + _BLOCK_ROWS]), self.k) for b in blocks])

    def jointly(self, X: np.ndarray, scaling: Scaling, moments: Moments) -> Joint:
        """How the latent functions at new inputs (n, d) in the user's units, with these moments, vary together."""
        return joint(self._sweeper, self.k, scaling.apply(X), moments.variance)

    def left_out(self, which: np.ndarray | None = None) -> Any:
        """Predictions for every observation from the others, or for the observations `which` (b,)."""
        observations = self.rows.observations
        which = np.arange(len(observations)) if which is None else which
        moments = self._sweeper.left_out(which, np.array([self.k])).at(0)
        known = self.model.family.known_noise(observations.take(which).observed)
        return self.head.predicted(moments, self.model.noise + known)

    def elsewhere(self, which: np.ndarray, inputs: np.ndarray, k: int) -> Any:
        """Predictions of the observations `which` (b,) from the others, as if they had been made at inputs (b, d)."""
        observed = self.rows.observations.take(which).observed
        moments = self._sweeper.elsewhere(which, inputs, min(k, self.k))
        return self.head.predicted(moments, self.model.noise + self.model.family.known_noise(observed))

    def extended(self, more: Rows) -> Predictor:
        """The same parameters with more rows. Where all rows were neighbours they still are, if not too many.

        The site state of the new rows settles; that of the old ones stays as it is.
        """
        family = self.model.family.with_rows(more.observed)
        model = self.model if family is self.model.family else replace(self.model, family=family)
        rows = self.rows.followed_by(more)
        k, before = self._more_neighbours(len(rows)), self._sweeper
        longer = replace(self, model=model, rows=rows, k=k)
        sweeper = Sweeper(model, rows, taper=self.taper, known=before.known, leaves=self.leaves)
        sweeper.settled(k, np.arange(len(self.rows), len(rows)), in_place=True)
        if before.factorised is not None and sweeper.whole(k):
            sweeper = Sweeper(model, rows, before.factorised, self.taper, sweeper.known, self.leaves)
        vars(longer)["_sweeper"] = sweeper
        return longer

    def reduced(self, weights: np.ndarray, settling_k: int) -> Predictor:
        """The same parameters with observations that count as often as weights (u,) say; rows without any are gone.

        Nothing that was computed of the rows stays, and no corner of a bend at a value that only rows had that are
        gone. Site state settles anew, from settling_k neighbours of each row. Where all rows were neighbours they still
        are.
        """
        own, n = self.rows.observations, len(self.rows)
        rows = self.rows.reduced(weights, self.model.family)
        gone = np.bincount(own.row[weights > 0], minlength=n) == 0
        warps = self.model.covariance.warps.without(self.rows.inputs[gone], np.asarray(rows.inputs))
        model = replace(self.model, covariance=self.model.covariance.with_warps(warps))
        most = max(len(rows) - 1, 1)
        k = most if self.k >= n - 1 else min(self.k, most)
        found = replace(self, model=model, rows=rows, k=k)
        state, _ = Sweeper(model, rows).settled(settling_k)
        return found if state is rows.state else replace(found, rows=rows.with_state(state))

    def _more_neighbours(self, n: int) -> int:
        """The number of neighbours when there are n rows."""
        if self.k < len(self.rows) - 1:
            return self.k
        most = all_rows(self.model.covariance.matrix_rows)
        if can_be_whole(self.model, n) or n - 1 <= most:
            return n - 1
        return max(most, min(self.k, FREE))
