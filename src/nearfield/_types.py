"""The nouns that the parts of the package hand to each other. Letters are defined in docs/notation.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch


@dataclass(frozen=True)
class KernelParameters:
    """What shapes a kernel: log length scales (d,), log kernel scale () or (R,), and log shape parameters (p,).

    R kernel scales belong to latent functions with noises of their own, see `Neighbourhood`.
    """

    log_lengths: torch.Tensor
    log_scale: torch.Tensor
    log_shape: torch.Tensor


@dataclass(frozen=True)
class Neighbourhood:
    """The rows to be predicted, each with its neighbours, nearest first.

    query: (b, d) inputs of the rows to be predicted; rows: (n, d) inputs of the rows that may be neighbours;
    ids: (b, k) row numbers of the neighbours, -1 behind the last one where there are fewer than k;
    targets, noises: (b, k) the neighbours' targets and noise variances (ignored where ids is -1).

    C latent functions that share the neighbours have targets (b, k, C), and noises (b, k, R): the same for all, R = 1,
    which (b, k) means too, or each its own, R = C.
    """

    query: torch.Tensor
    rows: torch.Tensor
    ids: torch.Tensor
    targets: torch.Tensor
    noises: torch.Tensor


class Problem(NamedTuple):
    """What an engine of the closed form works on: torch tensors for `batched`, numpy arrays for `fused`."""

    query: Any  # (b, d)
    rows: Any  # (n, d)
    lengths: Any  # (d,) length scales
    scale: Any  # (R,) kernel scales
    log_shape: Any  # (p,)
    ids: Any  # (b, k)
    targets: Any  # (b, k, C)
    noises: Any  # (b, k, R)


@dataclass(frozen=True)
class Moments:
    """Mean and variance of the latent function and quad = t' K^-1 t: (b,), or (b, q) for q numbers of neighbours.

    Of C latent functions: mean and quad (.., C) and variance (.., R), R = 1 where they share the noises, or else C.
    covariance: (.., C, C) between the latent functions, where they depend on each other.
    jittered: how many rows needed extra jitter before their matrix could be factorised.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    quad: torch.Tensor
    jittered: int = 0
    covariance: torch.Tensor | None = None
