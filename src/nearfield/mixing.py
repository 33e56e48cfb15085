"""The linear model of coregionalisation: outputs are mixtures f = W g of latent functions with a kernel each."""

from __future__ import annotations

import numpy as np
import torch

from nearfield.likelihoods import Likelihood
from nearfield.likelihoods.outputs import GaussianOutputs


def initial_mixing(likelihood: Likelihood, stats: np.ndarray, latents: int) -> np.ndarray:
    """Where the mixing matrix (P, Q) starts: the directions in which the targets vary most.

    W W' is then the correlation matrix of the outputs, or the part of it that Q latent functions can have. With as many
    latent functions as outputs, W is its symmetric root, so that each output has a latent function much like itself;
    further ones begin as small copies of these.
    """
    if not isinstance(likelihood, GaussianOutputs):
        raise TypeError(f"only several real outputs can be mixed, not a {likelihood.name} likelihood.")
    s = torch.from_numpy(stats)
    there = likelihood.present(s).numpy() * likelihood.counts(s).numpy()[:, None]
    targets = np.where(there > 0, likelihood.split(s)[0].numpy(), 0.0)
    together = there.T @ (there > 0)
    moments = (targets * there).T @ targets / np.maximum(together, 1e-300)
    values, vectors = np.linalg.eigh((moments + moments.T) / 2)
    roots = np.sqrt(np.maximum(values, 1e-4))  # a constant output has none
    best = np.argsort(-values, kind="stable")[:latents]
    start = vectors[:, best] * roots[best]
    if latents >= likelihood.outputs:
        start = (vectors * roots) @ vectors.T
    return np.concatenate([start / 3**i for i in range(-(-latents // start.shape[1]))], axis=1)[:, :latents]
