"""Data sets, splits and the paper's figures that the benchmarks compare with.

Data sets are files NAME.npz with arrays X (n, d) and y (n,). Their folder is given by the environment variable
NEARFIELD_DATA; without it, ../shared/data beside the repository is tried.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

METHODS = ("MLL", "SVGP", "PPGPR", "Vecchia", "SWSGP", "ALC", "MLL-k", "LOO-k")

NAN = float("nan")

# Jankowiak and Pleiss, Scalable Cross Validation Losses for Gaussian Process Models, table of all univariate regression
# results: averages over splits, targets standardised; one column for each of METHODS. ALC did not run on Keggdirected.
PAPER = {
    "nll": {
        "pol": (-0.817, -0.651, -0.825, -1.190, -1.036, -1.696, -1.200, -1.238),
        "elevators": (0.398, 0.401, 0.329, 0.407, 0.651, 0.441, 0.397, 0.401),
        "bike": (-1.750, -0.807, -1.314, -1.743, -1.401, -1.397, -2.541, -2.771),
        "kin40k": (-0.075, -0.414, -0.770, -0.763, -0.694, -0.778, -0.884, -1.040),
        "protein": (0.875, 0.902, 0.747, 0.936, 0.804, 0.826, 0.635, 0.626),
        "keggdirected": (-0.870, -1.045, -1.601, -1.048, -1.033, NAN, -1.055, -1.068),
        "keggundirected": (-0.643, -0.704, -1.807, -0.696, -0.690, 0.498, -0.697, -0.714),
    },
    "rmse": {
        "pol": (0.074, 0.107, 0.111, 0.075, 0.091, 0.083, 0.077, 0.073),
        "elevators": (0.347, 0.360, 0.362, 0.362, 0.448, 0.376, 0.359, 0.360),
        "bike": (0.022, 0.088, 0.094, 0.029, 0.059, 0.098, 0.025, 0.028),
        "kin40k": (0.084, 0.147, 0.188, 0.117, 0.121, 0.129, 0.105, 0.095),
        "protein": (0.514, 0.594, 0.609, 0.595, 0.542, 0.571, 0.525, 0.526),
        "keggdirected": (0.090, 0.086, 0.089, 0.085, 0.087, NAN, 0.085, 0.084),
        "keggundirected": (0.119, 0.120, 0.124, 0.120, 0.124, 0.118, 0.121, 0.117),
    },
    "crps": {
        "pol": (0.051, 0.061, 0.057, 0.039, 0.042, 0.034, 0.039, 0.036),
        "elevators": (0.195, 0.198, 0.193, 0.199, 0.244, 0.205, 0.197, 0.197),
        "bike": (0.019, 0.049, 0.037, 0.018, 0.026, 0.040, 0.009, 0.008),
        "kin40k": (0.093, 0.082, 0.077, 0.063, 0.063, 0.066, 0.054, 0.047),
        "protein": (0.293, 0.326, 0.310, 0.333, 0.285, 0.285, 0.259, 0.260),
        "keggdirected": (0.046, 0.037, 0.031, 0.038, 0.038, NAN, 0.037, 0.035),
        "keggundirected": (0.056, 0.051, 0.036, 0.053, 0.052, 0.033, 0.051, 0.050),
    },
}

DATASETS = tuple(PAPER["nll"])


@dataclass(frozen=True)
class Split:
    """Standardised rows: inputs (n, d) and targets (n,), and what undoes the scaling of the target."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_validation: np.ndarray
    y_validation: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    y_mean: float
    y_std: float


def paper(metric: str, dataset: str, method: str) -> float:
    """One figure of the paper, for example `paper("nll", "bike", "LOO-k")`."""
    return PAPER[metric][dataset][METHODS.index(method)]


def paper_best(metric: str, dataset: str) -> tuple[float, str]:
    """The best of the eight methods: its figure and its name."""
    return min((value, method) for value, method in zip(PAPER[metric][dataset], METHODS, strict=True) if value == value)


def folder() -> Path:
    """Where the data sets lie."""
    beside = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    found = Path(os.environ.get("NEARFIELD_DATA", beside))
    if not found.is_dir():
        raise FileNotFoundError(f"No data folder at {found}: set NEARFIELD_DATA to the folder with the .npz files.")
    return found


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (n, d) and targets (n,) of a data set, float64."""
    path = folder() / f"{name}.npz"
    if not path.is_file():
        raise SystemExit(f"No {path}: this benchmark needs arrays X (n, d) and y (n,) of {name} there.")
    with np.load(path) as arrays:
        return arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)


def split_rows(n: int, seed: int, most: int | None = None) -> list[np.ndarray]:
    """Numbers of the training, validation and test rows, in proportion 15:3:2, of n shuffled rows or `most` of them."""
    order = np.random.default_rng(seed).permutation(n)[:most]
    n = len(order)
    return np.split(order, [n * 15 // 20, n * 18 // 20])


def split(X: np.ndarray, y: np.ndarray, seed: int) -> Split:
    """Shuffled rows in proportion 15:3:2, inputs and target standardised on the training rows."""
    train, validation, test = split_rows(len(X), seed)
    X_mean, X_std = _centre_and_scale(X[train])
    y_mean, y_std = _centre_and_scale(y[train])
    parts = [((X[rows] - X_mean) / X_std, (y[rows] - y_mean) / y_std) for rows in (train, validation, test)]
    return Split(*(array for part in parts for array in part), y_mean=float(y_mean), y_std=float(y_std))


def standardised(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Inputs with mean zero and variance one on the training rows; constant columns are only centred."""
    mean, std = _centre_and_scale(train)
    return [(part - mean) / std for part in (train, *others)]


def _centre_and_scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Column means and standard deviations; 1 for constant columns, which are only centred."""
    mean, std = values.mean(axis=0), values.std(axis=0)
    constant = np.ptp(values, axis=0) == 0
    return mean, np.where(constant, 1.0, std)
