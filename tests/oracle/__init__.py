"""The closed form once more, in plain torch: dense matrices, and gradients by autograd alone.

Nothing here comes from the package, so that what agrees with it is right for other reasons than the same formula. The
kernels are formulas of their own too. Observations that are not there (an id of -1, an infinite noise) are taken out of
the matrix by putting the identity in their place.
"""

from __future__ import annotations

import math

import numpy as np
import torch

torch.set_num_threads(1)  # a forked child would wait for threads that only its parent has


def tensor(x) -> torch.Tensor:
    return x if isinstance(x, torch.Tensor) else torch.as_tensor(np.asarray(x), dtype=torch.float64)


def leaves(*xs) -> list[torch.Tensor]:
    return [tensor(np.array(x, dtype=np.float64)).requires_grad_() for x in xs]


def kernel_value(name: str, r2: torch.Tensor, log_shape: torch.Tensor) -> torch.Tensor:
    """A kernel of scale one at squared scaled distances r2, of any shape; one, with slope zero, where r2 is zero."""
    apart = r2 > 0
    r2 = torch.where(apart, r2, torch.ones_like(r2))
    r = r2.sqrt()
    if name == "rbf":
        value = torch.exp(-r2 / 2)
    elif name == "matern12":
        value = torch.exp(-r)
    elif name == "matern32":
        value = (1 + math.sqrt(3) * r) * torch.exp(-math.sqrt(3) * r)
    elif name == "matern52":
        value = (1 + math.sqrt(5) * r + 5 / 3 * r2) * torch.exp(-math.sqrt(5) * r)
    elif name == "auto":
        rough, q = torch.sigmoid(-log_shape[0]), math.sqrt(5) * r
        smooth = 1 - rough
        polynomials = rough**2 + 2 * rough * smooth * (1 + q) + smooth**2 * (1 + q + 5 / 3 * r2)
        value = polynomials * torch.exp(-q)
    else:
        alpha = log_shape[0].exp()
        value = torch.exp(-alpha * torch.log1p(r2 / (2 * alpha)))
    value = torch.nan_to_num(value, nan=0.0)  # infinity times zero, far away
    return torch.where(apart, value, torch.ones_like(value))


def squared_distances(differences, log_lengths, owners) -> torch.Tensor:
    """Of differences (.., d), or of those of features (.., d + w): the last w belong to the coordinates owners (w,)."""
    scaled, d = differences / log_lengths.exp(), len(log_lengths) - len(owners)
    return scaled[..., :d].index_add(-1, torch.as_tensor(owners).long(), scaled[..., d:]).square().sum(-1)


def correlations(name, log_lengths, log_shape, query, rows, ids, owners=()) -> tuple[torch.Tensor, torch.Tensor]:
    """Between the neighbours (b, k, k), and between neighbours and query (b, k)."""
    near = tensor(rows)[torch.as_tensor(ids).clamp_min(0)]
    pairs = squared_distances(near[:, :, None] - near[:, None], log_lengths, owners)
    cross = squared_distances(near - tensor(query)[:, None], log_lengths, owners)
    return kernel_value(name, pairs, log_shape), kernel_value(name, cross, log_shape)


def _identity_where_missing(matrix, there) -> torch.Tensor:
    both = there[..., :, None] & there[..., None, :]
    return torch.where(both, matrix, torch.zeros_like(matrix)) + torch.diag_embed((~there).to(matrix.dtype))


def moments(name, log_lengths, log_shape, n, targets, noises, ks=None):
    """Mean (b, q, C), variance (b, q, R) and quad (b, q, C); differentiable by all tensors given."""
    ids = torch.as_tensor(n.ids)
    _, k, C = targets.shape
    R = noises.shape[-1]
    pairs, cross = correlations(name, log_lengths, log_shape, n.query, n.rows, ids, n.owners)
    there = (ids >= 0)[:, :, None] & torch.isfinite(noises)  # (b, k, R)
    found: list[list[torch.Tensor]] = [[], [], []]
    for f in range(R):
        has = there[:, :, f]
        v = torch.where(has, noises[:, :, f], torch.zeros_like(noises[:, :, f]))
        L = torch.linalg.cholesky(_identity_where_missing(pairs + torch.diag_embed(v), has))
        own = slice(f, f + 1) if R > 1 else slice(0, C)
        t = torch.where(has[:, :, None], targets[:, :, own], torch.zeros_like(targets[:, :, own]))
        c = torch.where(has, cross, torch.zeros_like(cross))
        solved = torch.linalg.solve_triangular(L, torch.cat([c[:, :, None], t], -1), upper=False)
        first, others = solved[:, :, :1], solved[:, :, 1:]
        steps = [k] if ks is None else [min(int(i), k) for i in ks]

        def total(x, steps=steps):
            return torch.stack([x[:, :stop].sum(1) for stop in steps], 1)

        found[0].append(total(first * others))
        found[1].append(1 - total(first.square()))
        found[2].append(total(others.square()))
    return [torch.cat(x, -1) for x in found]


def moments_and_slopes(name, log_lengths, log_shape, n, by_mean, by_variance, by_quad=None):
    """Moments (b, 1, ..) and the gradients by log lengths, log shape, targets and noises, as numpy arrays."""
    given = leaves(log_lengths, log_shape, n.targets, n.noises)
    m = moments(name, given[0], given[1], n, given[2], given[3])
    loss = (m[0][:, 0] * tensor(by_mean)).sum() + (m[1][:, 0] * tensor(by_variance)).sum()
    if by_quad is not None:
        loss = loss + (m[2][:, 0] * tensor(by_quad)).sum()
    return [x.detach().numpy() for x in m], _gradients(loss, given)


def output_moments(name, log_lengths, log_shape, mixing, n, targets, noises, ks=None):
    """Mean (b, q, P), covariance (b, q, P, P) and quad (b, q, P) of outputs that mix latent functions."""
    ids = torch.as_tensor(n.ids)
    b, k, P = targets.shape
    matrix, cross = torch.zeros(b, k, P, k, P, dtype=torch.float64), torch.zeros(b, k, P, P, dtype=torch.float64)
    for q in range(mixing.shape[1]):
        pairs, near = correlations(name, log_lengths[q], log_shape, n.query, n.rows, ids, n.owners)
        w = mixing[:, q]
        matrix = matrix + torch.einsum("p,s,bij->bipjs", w, w, pairs)
        cross = cross + torch.einsum("p,s,bi->bips", w, w, near)
    there = ((ids >= 0)[:, :, None] & torch.isfinite(noises)).reshape(b, k * P)
    v = torch.where(there, noises.reshape(b, -1), torch.zeros(b, k * P, dtype=torch.float64))
    K = _identity_where_missing(matrix.reshape(b, k * P, k * P) + torch.diag_embed(v), there)
    sides = torch.cat([cross.reshape(b, k * P, P), targets.reshape(b, k * P, 1)], -1)
    L = torch.linalg.cholesky(K)
    solved = torch.linalg.solve_triangular(
        L, torch.where(there[:, :, None], sides, torch.zeros_like(sides)), upper=False
    )
    B, a = solved[:, :, :P], solved[:, :, P]
    own = torch.stack([L[:, i * P : (i + 1) * P, i * P : (i + 1) * P] for i in range(k)], 1) if k else L.new_zeros(b, 0)
    quads = L.new_zeros(b, 0, P)
    if k:
        added = torch.einsum("bipr,bir->bip", own, a.reshape(b, k, P))
        quads = torch.where(there.reshape(b, k, P), added.square() / own.square().sum(-1), torch.zeros_like(added))
    mean, covariance, quad = [], [], []
    for stop in [k] if ks is None else [min(int(i), k) for i in ks]:
        some = B[:, : stop * P]
        mean.append(torch.einsum("bis,bi->bs", some, a[:, : stop * P]))
        covariance.append(mixing @ mixing.T - torch.einsum("bis,bit->bst", some, some))
        quad.append(quads[:, :stop].sum(1))
    return [torch.stack(x, 1) for x in (mean, covariance, quad)]


def output_moments_and_slopes(name, log_lengths, log_shape, mixing, n, by_mean, by_covariance):
    """As `moments_and_slopes`; gradients by log lengths, log shape, mixing, targets and noises."""
    given = leaves(log_lengths, log_shape, mixing, n.targets, n.noises)
    m = output_moments(name, *given[:3], n, *given[3:])
    loss = (m[0][:, 0] * tensor(by_mean)).sum() + (m[1][:, 0] * tensor(by_covariance)).sum()
    return [x.detach().numpy() for x in m], _gradients(loss, given)


def _gradients(loss, given) -> list[np.ndarray]:
    found = torch.autograd.grad(loss, given, allow_unused=True, materialize_grads=True)
    return [x.numpy() for x in found]
