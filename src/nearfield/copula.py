"""From standard normals to the marginal distributions of predictions: a Gaussian copula, and the room it takes.

A sample z of a row, standard normal, becomes the quantile of the row's own distribution at the probability Phi(z). The
samples of a row then follow that distribution, and rows depend on each other as their z do.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False

from __future__ import annotations

import math
import os

import numpy as np
import scipy.stats

from nearfield._compiled import compiled
from nearfield._threads import in_threads

_REACH, _STEPS = 12.0, 256  # normals up to it, of which there are none beyond; nodes of the table for each unit
_SHARE = 0.8  # of the memory that is free, for samples


def refuse_too_large(shape: tuple[int, ...], what: str, copies: int = 2) -> None:
    """A MemoryError that tells the size of an answer that does not fit, before anything is computed."""
    size, free = copies * 8 * math.prod(shape), free_memory()
    if free is not None and size > _SHARE * free:
        wanted = " x ".join(f"{length:,}" for length in shape)
        raise MemoryError(
            f"{what} of {wanted} numbers take {size / 2**30:,.1f} GB of memory, of which {free / 2**30:,.1f} GB are "
            "free: ask for fewer rows or samples at a time."
        )


def free_memory() -> int | None:
    """Bytes that new arrays can have; None where the system does not tell."""
    try:
        with open("/proc/meminfo") as lines:
            found = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return 1024 * found["MemAvailable"]
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:
        return int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return None


def with_noise(z: np.ndarray, share: np.ndarray, rng: np.random.Generator) -> None:
    """Make so much (n,) of the variance of standard normals z (n, s) noise that rows have not in common, in place."""
    kept, new = np.sqrt(np.clip(1 - share, 0.0, 1.0)), np.sqrt(np.clip(share, 0.0, 1.0))
    for start in range(0, len(z), 4096):  # the stream of numbers does not depend on the blocks
        part = z[start : start + 4096]
        noise = rng.standard_normal(part.shape)
        noise *= new[start : start + 4096, None]
        part *= kept[start : start + 4096, None]
        part += noise


def to_marginals(z: np.ndarray, df: float, loc: np.ndarray, scale: np.ndarray) -> None:
    """Standard normals z (n, s) into samples of Student-t distributions (df infinite: normal), in place."""
    if math.isinf(df):
        z *= scale[:, None]
        z += loc[:, None]
        return
    nodes = np.arange(0, int(_REACH) * _STEPS + 1) / _STEPS
    values = scipy.stats.t.isf(scipy.stats.norm.sf(nodes), df)
    slopes = np.exp(scipy.stats.norm.logpdf(nodes) - scipy.stats.t.logpdf(values, df)) / _STEPS
    in_threads(lambda start, stop: _bend(z, values, slopes, loc, scale, start, stop), len(z), 256)


@compiled(error_model="numpy")
def _bend(z, values, slopes, loc, scale, start, stop):
    """Rows start .. stop through a table of an odd function: cubic between its nodes, with the right slopes there."""
    last = len(values) - 2
    for i in range(start, stop):
        for s in range(z.shape[1]):
            x = abs(z[i, s]) * _STEPS
            j = min(int(x), last)
            t = x - j
            rest = 1 - t
            low = values[j] * (1 + 2 * t) + slopes[j] * t
            high = values[j + 1] * (1 + 2 * rest) - slopes[j + 1] * rest
            found = low * rest * rest + high * t * t
            z[i, s] = loc[i] + scale[i] * (found if z[i, s] >= 0 else -found)
