"""What a user can set of a fit, and how it is watched over."""

from __future__ import annotations

import os
from dataclasses import dataclass

METRICS = ("learned", "plain")


@dataclass(frozen=True)
class Settings:
    """What a user can set of a fit; the defaults of the package."""

    kernel: str = "auto"
    warp: bool | tuple[int, ...] = True  # which columns may be bent: all, none, or those with these numbers
    metric: str = "learned"  # or "plain", the paper's: Matern 5/2 for kernel "auto", no warps, no prior on lengths
    k: int | str = "auto"
    predictive: str = "calibrated"  # or "plain", as the trained model says
    mean: str = "constant"
    structure: str = "shared"  # one kernel for all latent functions; "own": one for each; "mixed": mixtures of some
    mixed_latents: int = 0  # latent functions that outputs are mixtures of
    objective: str = "loo"
    ordering: str = "random"  # of the rows, for Vecchia's objective
    max_steps: int = 600
    learning_rate: float = 0.03
    batch_size: int = 128
    refresh_every: int = 50
    drift: tuple[int, ...] | None = None  # numbers of the columns on which a linear mean depends; None: on all
    continuous: bool | str = "auto"  # whether predictions may not jump where neighbours change
    search: str = "exact"  # or "approximate": predictions from most of the nearest neighbours, see `approximate.py`


@dataclass(frozen=True)
class Watch:
    """How a fit is watched over: the seed that was asked for, one that was drawn, a checkpoint, a progress bar.

    near_copies: whether to look for them, and to say it if there are many.
    """

    asked_seed: int | None = None
    drawn_seed: int = 0
    checkpoint: str | os.PathLike[str] | None = None
    verbose: bool | None = None  # None: on terminals
    near_copies: bool = True
