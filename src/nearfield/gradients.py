"""Slopes of predictions by the inputs, in closed form.

With alpha = K^-1 t and beta = K^-1 c, and c_j = k(r2_j) with r2_j = sum_e (x_e - z_je)^2 / length_e^2, where z_j is
neighbour j, for a row x whose neighbours stay the same

    d mean = alpha' dc     d variance = -2 beta' dc     d c_j / d x_e = 2 slope(r2_j) (x_e - z_je) / length_e^2

and quad does not change. Where neighbourhoods are continuous, the noises of neighbours change too (`taper.py`), with
distances, and with them quad and the sizes: a second sum, over the slopes by these. Then comes the chain: columns that
are bent, the mean, the head and the units of the user. Kernels with a share of Matern 1/2 have a kink at each
neighbour; there its own part counts as zero, the middle of both sides. A column that is bent has kinks at its knots,
where the slope is that of the piece behind.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from nearfield._threads import one_blas_thread
from nearfield.covariances import KernelWeights
from nearfield.kernels import Kernel, profile
from nearfield.moments import NEAR, Moments, outside_slopes
from nearfield.neighbours import NeighbourTable
from nearfield.prediction import Predictor
from nearfield.scaling import Scaling
from nearfield.sweep import Sweeper

_STEP = 1e-5  # of differences of a head's formula, relative to its argument: right to ten digits
_WHOLE_NUMBERS = 2**20  # of all rows, held at a time


class MomentSlopes(NamedTuple):
    """Slopes (b, C, d) of the moments by the standardised inputs; of sizes (b, 1 or C, d), of outside (b, 1, d).

    See `moments.Moments`.
    """

    mean: np.ndarray
    variance: np.ndarray
    quad: np.ndarray
    size: np.ndarray
    near_quad: np.ndarray
    near_size: np.ndarray
    outside: np.ndarray


class Gradient(NamedTuple):
    """Slopes (n, d) or (n, P, d) of the centre and of both scales of predictions, see `heads.regression.Predicted`."""

    loc: np.ndarray
    scale: np.ndarray
    latent_scale: np.ndarray


def gradient(predictor: Predictor, X: np.ndarray, scaling: Scaling, known: np.ndarray | None = None) -> Gradient:
    """Slopes of predictions of real targets at inputs (n, d), in units of the target and by the user's inputs.

    known: noise variances (n, C) that the rows have beside the learned ones.
    """
    sweeper, k = predictor.sweeper, predictor.k
    neighbours = len(predictor.rows) if sweeper.whole(k) else k
    size = max(1, _WHOLE_NUMBERS // (neighbours * predictor.model.family.latents))
    parts = []
    for start in range(0, len(X), size):
        given = X[start : start + size]
        query = scaling.apply(given)
        moments = sweeper.new(query, k)
        by = moment_slopes(sweeper, query, k)
        noise = predictor.noise(None if known is None else known[start : start + size])
        found = head_slopes(predictor.head, moments, by, noise)
        parts.append(Gradient(*(_by_given(scaling, given, part) for part in found)))
    return Gradient(*(np.concatenate(pieces) for pieces in zip(*parts, strict=True)))


def _by_given(scaling: Scaling, given: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Slopes (b, d) or (b, P, d) by the user's inputs (b, d) from those by standardised ones, (b, .., m)."""
    if by.ndim == 2:
        return scaling.slopes(given, by)
    return np.stack([scaling.slopes(given, by[:, output]) for output in range(by.shape[1])], axis=1)


def moment_slopes(sweeper: Sweeper, query: np.ndarray, k: int) -> MomentSlopes:
    """Slopes of what `Sweeper.new` gives at standardised inputs (b, d), by these."""
    model, (b, d) = sweeper.model, query.shape
    covariance, p = model.covariance, model.parameters
    found = {name: np.zeros((b, model.family.latents, d)) for name in MomentSlopes._fields}
    near: dict[str, np.ndarray] = {}
    if sweeper.whole(k):
        with one_blas_thread():
            weights = sweeper.together.found.kernel_weights(query)
        ids = np.broadcast_to(np.arange(len(sweeper.rows)), (b, len(sweeper.rows)))
        near = _tapered(sweeper, query, NEAR)[1] if sweeper.taper is not None else {}
    elif sweeper.taper is None:
        ids = sweeper.new_ids(query, k)
        weights = model.latent(sweeper.rows, query, ids, differentiate=True).found.kernel_weights()
    else:
        (ids, weights), by = _tapered(sweeper, query, k)
        near = by if k <= NEAR else _tapered(sweeper, query, NEAR)[1]
        found |= by
    found |= {f"near_{name}": near[name] for name in ("quad", "size") if name in near}
    points = model.coordinates(query)
    for own in weights:
        mean, variance = by_coordinates(covariance.kernel, p["log_shape"], own, points, sweeper.located, ids)
        found["mean"][:, own.own] += mean
        found["variance"][:, own.own] += variance
    bent = covariance.coordinate_slopes(p, query)[:, None]
    found = {name: part * bent for name, part in found.items()}
    found["mean"] += model.mean.input_slopes(query, p)
    found["outside"] = outside_slopes(*sweeper.bounds, query)
    return MomentSlopes(**found)


def _tapered(
    sweeper: Sweeper, query: np.ndarray, k: int
) -> tuple[tuple[np.ndarray, list[KernelWeights]], dict[str, np.ndarray]]:
    """Of k neighbours that taper off: their numbers (b, k) and the slopes by correlations with them, and slopes
    (b, C, d) of mean, variance, quad and size by coordinates, as far as the noises change with these."""
    model, taper = sweeper.model, sweeper.taper
    assert taper is not None
    table = sweeper.new_table(query, k)
    k = min(k, table.ids.shape[1])
    around, latent = sweeper.around(query, table, k, differentiate=True)
    points, places = model.coordinates(query), np.maximum(table.ids, 0)

    def by_points(by_u: np.ndarray) -> np.ndarray:
        """From slopes by u (b, C, k), in the order of `around`."""
        ordered = np.zeros(by_u.shape)
        np.put_along_axis(ordered, np.broadcast_to(around.places[:, None], by_u.shape), by_u, axis=2)
        by_squares = 2 * taper.depth_slopes(table.sqdist, k, ordered)
        return contracted(by_squares, points, sweeper.located, places) / sweeper.lengths**2

    u, left = np.sqrt(1 - around.shares), np.where(around.shares > 0, around.shares, np.inf)
    by_noise = (2 * taper.noise * u / left**2)[:, None]  # of the noise by u; at the edge weights are zero
    weights = latent.found.noise_weights()
    sizes = np.where(around.ids[..., None] >= 0, model.family.sizes(latent.observed), 0.0)
    by = {
        "mean": by_points(weights.mean * by_noise),
        "variance": by_points(weights.variance * by_noise),
        "size": by_points((-2 * u[..., None] * sizes).transpose(0, 2, 1)),
    }
    if weights.quad is not None:
        by["quad"] = by_points(weights.quad * by_noise)
    else:
        by["quad"] = _quad_differences(sweeper, query, table, k)
    return (around.ids, latent.found.kernel_weights()), by


def _quad_differences(sweeper: Sweeper, query: np.ndarray, table: NeighbourTable, k: int) -> np.ndarray:
    """Slopes (b, C, d) of quad by coordinates, with the same neighbours, from central differences of the closed form:
    quads of mixed outputs, which depend on an order, have no short formula."""
    points, places = sweeper.model.coordinates(query), np.maximum(table.ids, 0)
    found = np.empty((len(query), sweeper.model.family.latents, query.shape[1]))
    for e, length in enumerate(sweeper.lengths):
        off = (points[:, e, None] - sweeper.located[places, e]) / length
        sides = []
        for step in (_STEP, -_STEP):
            moved = np.maximum(table.sqdist + step * (2 * off + step), 0.0)
            sides.append(sweeper.around(query, NeighbourTable(table.ids, moved), k)[1].found.quad[:, 0])
        found[..., e] = (sides[0] - sides[1]) / (2 * _STEP * length)
    return found


def by_coordinates(
    kernel: Kernel, log_shape: np.ndarray, weights: KernelWeights, points: np.ndarray, rows: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Slopes (b, c, d) of mean and variance by the points (b, d), whose neighbours are the rows (n, d) ids (b, k)."""
    inverse = np.exp(-weights.log_lengths)
    r2 = np.zeros(ids.shape)
    places = np.maximum(ids, 0)  # where there is none, the weights are zero
    for e in range(points.shape[1]):
        r2 += ((points[:, e, None] - rows[places, e]) * inverse[e]) ** 2
    slope = 2 * profile(kernel, r2, log_shape).slope[:, None]
    both = (contracted(part * slope, points, rows, places) for part in (weights.mean, weights.variance))
    mean, variance = (part * inverse**2 for part in both)
    return mean, variance


def contracted(weights: np.ndarray, points: np.ndarray, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """sum_j weights[i, c, j] (points[i] - rows[places[i, j]]): (b, c, d) from weights (b, c, k), places (b, k)."""
    found = np.empty((*weights.shape[:2], points.shape[1]))
    for e in range(points.shape[1]):  # column by column: memory does not grow with them
        off = points[:, e, None] - rows[places, e]
        found[:, :, e] = np.einsum("bck,bk->bc", weights, off)
    return found


def head_slopes(head: Any, moments: Moments, by: MomentSlopes, noise: np.ndarray) -> Gradient:
    """Slopes of what the head predicts, (b, d) or (b, P, d), from those of the moments (b, C, d).

    The formula of a head stands in one place, the head: here differences of it are taken, moment by moment, to ten
    digits. Every output depends on its own moments alone. A variance of zero, as rounding leaves it where the function
    is known, has no slope, and moments that stay as they are have no part in it.
    """
    loc = head.predicted(moments, noise).loc
    several = loc.ndim == 2
    slopes = np.zeros((2, *by.mean.shape))
    for name, slope in by._asdict().items():
        if not slope.any():
            continue
        value = getattr(moments, name)
        step = _STEP * (1 + np.abs(value) if name == "mean" else np.abs(value))
        above, below = (head.predicted(replace(moments, **{name: value + s}), noise) for s in (step, -step))
        width = np.where(step > 0, 2 * step, 1.0)
        for place, part in enumerate(("scale", "latent_scale")):
            rise = getattr(above, part) - getattr(below, part)
            slopes[place] += ((rise if several else rise[:, None]) / width)[..., None] * slope
    found = Gradient(by.mean, *slopes)
    return found if several else Gradient(*(part[:, 0] for part in found))
