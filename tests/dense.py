"""Exact Gaussian processes by dense algebra, written down on their own: what nearest neighbours equal in the limit."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, softmax

from nearfield.kernels import KERNELS


def correlation(A, B, log_lengths, rough=0.0):
    """Between A (n, d) and B (m, d), of scale one: Matern 5/2, or the kernel "auto", which has it for rough = 0."""
    q = np.sqrt(5 * (((A[:, None] - B[None]) / np.exp(log_lengths)) ** 2).sum(-1))
    smooth = 1 - rough
    return (rough**2 + 2 * rough * smooth * (1 + q) + smooth**2 * (1 + q + q * q / 3)) * np.exp(-q)


def rough_of(model):
    """What `correlation` takes of the model's kernel."""
    known = {KERNELS["matern52"].code: lambda: 0.0, KERNELS["auto"].code: lambda: expit(-p["log_shape"][0])}
    p = model.parameters
    return known[model.covariance.kernel.code]()


def bent(model, A):
    """Inputs A (n, d) as the kernel sees them: shares of a column, its normal score and its uniform score."""
    warps, found = model.covariance.warps, np.array(A, dtype=np.float64)
    for i, e in enumerate(warps.columns):
        z, knots = found[:, e].copy(), warps.knots[i]
        low = np.clip(np.searchsorted(knots, z, side="right") - 1, 0, len(knots) - 2)  # the ends lead on
        along = (z - knots[low]) / (knots[low + 1] - knots[low])
        scores = [own[low] * (1 - along) + own[low + 1] * along for own in warps.scores[i]]
        found[:, e] = softmax([0.0, *model.parameters["bends"][i]]) @ np.stack([z, *scores])
    return found


def mixing_of(model):
    """f = W g with independent g: W (C, Q), and the log length scales (Q, d) of these."""
    p, C = model.parameters, model.family.latents
    lengths = np.atleast_2d(p["log_lengths"])
    if "mixing" in p:
        return p["mixing"], lengths
    return np.diag(np.broadcast_to(np.exp(p["log_scale"]), C)), np.broadcast_to(lengths, (C, lengths.shape[1]))


def prior(model, A, B):
    """Covariances (n, C, m, C) of the latent functions between A (n, d) and B (m, d), for Matern 5/2 or "auto"."""
    (W, lengths), rough, A, B = mixing_of(model), rough_of(model), bent(model, A), bent(model, B)
    return sum(
        np.einsum("ij,p,s->ipjs", correlation(A, B, lengths[q], rough), W[:, q], W[:, q]) for q in range(W.shape[1])
    )  # fmt: skip


def level(model, A):
    """Prior means (n, C) of the latent functions at A (n, d)."""
    p = model.parameters
    return p["mean"] + (A @ p["mean_slopes"].T if "mean_slopes" in p else np.zeros((len(A), 1)))


def posterior(model, X, targets, noises, query):
    """Mean (m, C) and covariance (m, C, C) of the latent functions at query (m, d), measured at X (n, d).

    targets (n, C) with noise variances (n, C), infinite where there is no measurement.
    """
    n, C = targets.shape
    m = len(query)
    noises = np.broadcast_to(noises, targets.shape).ravel()
    there = np.flatnonzero(np.isfinite(noises))
    K = prior(model, X, X).reshape(n * C, n * C)[np.ix_(there, there)] + np.diag(noises[there])
    c = prior(model, X, query).reshape(n * C, m * C)[there]
    weights = np.linalg.solve(K, c)
    mean = level(model, query) + (weights.T @ (targets - level(model, X)).ravel()[there]).reshape(m, C)
    spread = (prior(model, query, query).reshape(m * C, m * C) - c.T @ weights).reshape(m, C, m, C)
    return mean, spread[np.arange(m), :, np.arange(m), :]


def sites_of(model, observed, state):
    """Sites of rows (n,) with that site state (n, A): targets and noise variances (n, C), in the same units."""
    sites = model.family.sites(observed, state, model.parameters, model.scale2)
    return sites.targets, np.broadcast_to(sites.noises * model.scale2, sites.targets.shape)
