"""Predictions as they would be without single training rows, with the same parameters, scaling and site state.

Without one of its k neighbours, a row is predicted from the k nearest of the others: the (k + 1)-th comes in. So k + 1
neighbours are factorised, once, and all deletions follow (`conditional/deletions.py`). Rows that are no neighbours
change nothing. Where all rows are neighbours, the factorisation of all of them serves.

Where neighbourhoods are continuous, the edge moves when a neighbour goes, and the noises of the others with it.
`deletions` leaves both as they are, which tells the rows that matter most; `without_exactly` predicts anew from what is
left, at the price of a prediction for each row that is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nearfield._threads import one_blas_thread
from nearfield._types import Neighbourhood
from nearfield.conditional.deletions import Influences, Without, influences, without_each
from nearfield.families import taken
from nearfield.model import Model
from nearfield.numbering import Numbering
from nearfield.prediction import Predictor
from nearfield.rows import Rows, seen_by
from nearfield.scaling import Scaling

_BLOCK_NUMBERS = 2**17  # neighbours held at a time, over all rows of a block and all latent functions


class Deleted(NamedTuple):
    """Latent functions at b rows with all training rows, and without each of m of them; any other changes nothing.

    ids: (b, m) rows that may be deleted; near: how many of them, the first, are neighbours when all rows are there;
    mean, variance, quad: (b, C) with all rows;
    weights: (b, C, m) kriging weights, by which targets less their means add up to the mean less its own;
    without: mean, variance and quad (b, C, m) without each.
    """

    ids: np.ndarray
    near: int
    mean: np.ndarray
    variance: np.ndarray
    quad: np.ndarray
    weights: np.ndarray
    without: Without


def deletions(predictor: Predictor, X: np.ndarray, scaling: Scaling, entire: bool) -> Iterator[tuple[slice, Deleted]]:
    """For inputs X (n, d) in the user's units, block by block: which rows of X, and what deletions do to them.

    entire: whether rows that stand for several observations are deleted as a whole; else they lose one, as in
    `Sweeper.left_out`; that is for families that observe one thing at a row.
    """
    model = predictor.model
    if model.covariance.matrix_rows > 1:
        raise NotImplementedError("deletions of rows of outputs that depend on each other are not there.")
    near = min(predictor.k + 1, len(predictor.rows))
    sites = rest = None  # of few predictions from many rows, those around are enough
    if not entire or len(X) * near >= len(predictor.rows):
        sites = _sites(model, predictor.rows)
        rest = None if entire else _rest(model, predictor.rows, sites)
    size = max(1, _BLOCK_NUMBERS // (near * model.family.latents))
    for start in range(0, len(X), size):
        block = slice(start, min(start + size, len(X)))
        yield block, _deleted(predictor, scaling.apply(X[block]), sites, rest)


def moves_edge(predictor: Predictor) -> bool:
    """Whether `deletions` are not exact: neighbourhoods are continuous, and there are rows beyond them."""
    return predictor.taper is not None and predictor.k < len(predictor.rows) - 1


def without_exactly(predictor: Predictor, X: np.ndarray, scaling: Scaling, which: np.ndarray) -> Without:
    """Mean, variance and quad (b, C, c) at inputs X (b, d) as they are without each of the rows `which` (b, c).

    For continuous neighbourhoods with an edge; rows are deleted as a whole.
    """
    model, sweeper, taper, n = predictor.model, predictor.sweeper, predictor.taper, len(predictor.rows)
    assert taper is not None
    query = scaling.apply(X)
    table = sweeper.index.query(model.coordinates(query) / sweeper.lengths, min(predictor.k + 2, n))
    k = n - 1 if predictor.k >= n - 2 else predictor.k  # as a model of one row less has it
    found = []
    for gone in which.T:
        kept = table.ids != gone[:, None]
        kept[kept.all(axis=1), -1] = False  # it is too far away to matter
        ids, sqdist = (part[kept].reshape(len(X), -1) for part in (table.ids, table.sqdist))
        around = taper.around(ids, sqdist, k)
        own = _around(model, predictor.rows, around.ids)
        found.append(_nearest(predictor, query, around.ids, k, own, around.noises)[0])
    scale2, level = np.broadcast_to(model.scale2, (model.family.latents,)), model.mean.at(query, model.parameters)
    return Without(
        np.stack([own.mean + level for own in found], axis=2),
        np.stack([own.variance * scale2 for own in found], axis=2),
        np.stack([own.quad / scale2 for own in found], axis=2),
    )


class _Sites(NamedTuple):
    """Targets less the mean and noises (n, C) of rows, or (b, m, C) of neighbours; noises are infinite where nothing
    was observed, or left."""

    targets: np.ndarray
    noises: np.ndarray

    def at(self, ids: np.ndarray) -> _Sites:
        """Those of the rows ids (b, m)."""
        return _Sites(self.targets[ids], self.noises[ids])


def _sites(model: Model, rows: Rows) -> _Sites:
    found = model.family.sites(rows.observed, rows.state, model.parameters, model.scale2)
    return _Sites(found.targets - model.mean.at(np.asarray(rows.inputs), model.parameters), found.noises)


def _around(model: Model, rows: Rows, ids: np.ndarray) -> _Sites:
    """Those of the neighbours ids (b, m), of which no other row is read."""
    some = Numbering(ids)
    observed, state = taken(rows.observed, some.rows), rows.state[some.rows]
    found = model.family.sites(observed, state, model.parameters, model.scale2)
    targets = found.targets - model.mean.at(rows.inputs[some.rows], model.parameters)
    return _Sites(targets, found.noises).at(some.places(ids))


def _rest(model: Model, rows: Rows, sites: _Sites) -> _Sites:
    """What is left of each row without one observation of it; infinite noises where it has one alone."""
    left_out = rows.observations
    if not np.array_equal(left_out.row, np.arange(len(rows))):
        raise NotImplementedError(f"rows of the {model.family.name} family are observed more than once each.")
    noises, several = np.full(sites.noises.shape, np.inf), np.flatnonzero(~left_out.alone)
    targets = sites.targets.copy()
    if several.size:
        observed, state = seen_by(rows, model.family, several[:, None], left_out.take(several))
        found = model.family.sites(observed, state, model.parameters, model.scale2)
        noises[several] = found.noises[:, 0]
        targets[several] = found.targets[:, 0] - model.mean.at(rows.inputs[several], model.parameters)
    return _Sites(targets, noises)


def _deleted(predictor: Predictor, query: np.ndarray, sites: _Sites | None, rest: _Sites | None) -> Deleted:
    """Standardised inputs (b, d). sites: of all rows, None: to be found of the neighbours; rest: None for nothing."""
    model, sweeper, n = predictor.model, predictor.sweeper, len(predictor.rows)
    first = n if predictor.k >= n - 1 else predictor.k
    if sweeper.whole(predictor.k):
        with one_blas_thread():
            few = every = _together(predictor, query)
        ids = np.broadcast_to(np.arange(n), (len(query), n))
        around = _around(model, predictor.rows, ids) if sites is None else sites.at(ids)
    else:
        table = sweeper.index.query(sweeper.metric.apply(query), min(first + 1, n))
        ids, extra = table.ids, None
        if predictor.taper is not None:
            tapered = predictor.taper.around(table.ids, table.sqdist, first)
            ids, extra = tapered.ids, tapered.noises
        around = _around(model, predictor.rows, ids) if sites is None else sites.at(ids)
        few, every = _nearest(predictor, query, ids, first, around, extra)
    noisier, further = _changes(around, None if rest is None else rest.at(ids), model.family.latents)
    gone = without_each(every, np.where(np.isinf(noisier), noisier, 0.0), further)
    fewer = without_each(few, np.where(np.isinf(noisier), 0.0, noisier), further)
    # a row of which something is left stays the neighbour that it is, and no other comes in
    without = Without(*(np.where(np.isinf(noisier), *parts) for parts in zip(gone, fewer, strict=True)))
    for part, own in zip(without, (few.mean, few.variance, few.quad), strict=True):
        part[..., first:] = own[..., None]  # it is no neighbour as long as all are there
    scale2 = np.broadcast_to(model.scale2, (model.family.latents,))
    level = np.broadcast_to(model.mean.at(query, model.parameters), few.mean.shape)
    return Deleted(
        ids,
        min(first, ids.shape[1]),
        few.mean + level,
        few.variance * scale2,
        few.quad / scale2,
        few.beta,
        Without(
            without.mean + level[..., None], without.variance * scale2[:, None], without.quad / scale2[:, None]
        ),
    )  # fmt: skip


def _changes(around: _Sites, rest: _Sites | None, latents: int) -> tuple[np.ndarray, np.ndarray]:
    """By how much noises and targets (b, C, m) of the neighbours grow with what is left of them; None: nothing is."""
    shape = (*around.noises.shape[:2], latents)
    if rest is None:
        return np.full(shape, np.inf).transpose(0, 2, 1), np.zeros(shape).transpose(0, 2, 1)
    with np.errstate(invalid="ignore"):  # what was not observed: infinity less infinity
        noisier = np.broadcast_to(rest.noises - around.noises, shape)
    noisier = np.where(np.isnan(noisier), np.inf, noisier)
    return noisier.transpose(0, 2, 1), (rest.targets - around.targets).transpose(0, 2, 1)


def _nearest(
    predictor: Predictor, query: np.ndarray, ids: np.ndarray, first: int, sites: _Sites, extra: np.ndarray | None
) -> tuple[Influences, Influences]:
    """Of the first neighbours ids (b, m) with these sites alone, and of all; extra: noises (b, m) beside their own."""
    model, p = predictor.model, predictor.model.parameters
    own, lengths = model.covariance, model.covariance.lengths(p, False)
    coordinates, located, places = model.coordinates(query), predictor.sweeper.located_of_few, ids
    if located is None:
        located, places = model.near(predictor.rows, ids)

    def found(log_lengths: np.ndarray, targets: np.ndarray, noises: np.ndarray) -> tuple[Influences, Influences]:
        own_noises = noises if extra is None else noises + extra[..., None]
        near = Neighbourhood(coordinates, located, places, targets, own_noises)
        return influences(own.kernel, log_lengths, p["log_shape"], near, first)

    if lengths.ndim == 1:
        return found(lengths, *sites)
    noises = np.broadcast_to(sites.noises, sites.targets.shape)
    one = [slice(c, c + 1) for c in range(len(lengths))]
    each = [found(lengths[c], sites.targets[..., part], noises[..., part]) for c, part in enumerate(one)]
    return _beside([few for few, _ in each]), _beside([every for _, every in each])


def _together(predictor: Predictor, query: np.ndarray) -> Influences:
    """Of all rows."""
    found = predictor.sweeper.together.found
    points = found.own.coordinates(found.values, query)
    return _beside([part.influences(points) for part in found.parts])


def _beside(parts: list[Influences]) -> Influences:
    """Latent functions that were found one after the other."""
    return (
        parts[0] if len(parts) == 1 else Influences(*(np.concatenate(own, axis=1) for own in zip(*parts, strict=True)))
    )
