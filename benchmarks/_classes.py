"""Classification data sets, splits and the paper's figures for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from _data import folder, split_rows, standardised

# Jankowiak and Pleiss, table of all classification results: NLL and error, averages and standard errors over splits.
BINARY_METHODS = ("SVGP", "PGVI", "LOO-k")
BINARY = {
    "titanic": (((0.482, 0.019), (0.483, 0.018), (0.485, 0.021)), (0.210, 0.209, 0.210)),
    "bank": (((0.241, 0.006), (0.246, 0.007), (0.234, 0.008)), (0.098, 0.102, 0.101)),
    "spambase": (((0.213, 0.004), (0.217, 0.002), (0.222, 0.003)), (0.067, 0.066, 0.076)),
    "musk2": (((0.126, 0.003), (0.114, 0.003), (0.111, 0.005)), (0.036, 0.033, 0.034)),
    "adult": (((0.309, 0.002), (0.319, 0.002), (0.329, 0.002)), (0.142, 0.147, 0.146)),
    "covtype_fir": (((0.377, 0.001), (0.354, 0.000), (0.057, 0.001)), (0.171, 0.161, 0.023)),
    "covtype_pine": (((0.381, 0.001), (0.357, 0.001), (0.060, 0.001)), (0.174, 0.163, 0.024)),
}
MULTI_METHODS = ("SVGP", "LOO-k")
MULTI = {
    "cardiotocography": (((0.387, 0.018), (0.466, 0.020)), (0.146, 0.168)),
    "splice": (((0.030, 0.004), (0.025, 0.001)), (0.001, 0.000)),
    "abalone": (((0.691, 0.013), (0.668, 0.018)), (0.314, 0.289)),
    "wine_white": (((0.996, 0.009), (0.945, 0.008)), (0.414, 0.355)),
    "page_blocks": (((0.147, 0.010), (0.129, 0.010)), (0.045, 0.035)),
    "optdigits": (((0.080, 0.005), (0.098, 0.004)), (0.020, 0.014)),
    "landsat": (((0.197, 0.009), (0.199, 0.011)), (0.078, 0.075)),
    "thyroid": (((0.099, 0.007), (0.068, 0.006)), (0.044, 0.019)),
    "pendigits": (((0.026, 0.004), (0.032, 0.003)), (0.005, 0.006)),
    "nursery": (((0.033, 0.001), (0.033, 0.001)), (0.008, 0.010)),
    "chess_krkopt": (((0.034, 0.005), (0.031, 0.002)), (0.009, 0.009)),
    "chess_krvskp": (((0.034, 0.005), (0.031, 0.002)), (0.009, 0.009)),  # the paper does not say which "Chess" is
    "shuttle": (((0.015, 0.001), (0.010, 0.000)), (0.005, 0.002)),
    "covtype": (((0.560, 0.002), (0.089, 0.001)), (0.238, 0.032)),
}

# Covtype against itself: the fir classes (spruce/fir, Douglas-fir) and the pine classes (lodgepole, ponderosa).
_COVTYPE_PARTS = {"covtype_fir": (0, 5), "covtype_pine": (1, 2)}


@dataclass(frozen=True)
class Paper:
    """The paper's figures for one data set: (NLL, its standard error) and error of each method."""

    nll: dict[str, tuple[float, float]]
    error: dict[str, float]

    @property
    def best_nll(self) -> float:
        return min(value for value, _ in self.nll.values())

    @property
    def best_error(self) -> float:
        return min(self.error.values())


def paper(name: str) -> Paper:
    """The paper's figures."""
    methods, (nll, error) = (BINARY_METHODS, BINARY[name]) if name in BINARY else (MULTI_METHODS, MULTI[name])
    return Paper(dict(zip(methods, nll, strict=True)), dict(zip(methods, error, strict=True)))


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (n, d) and labels (n,)."""
    with np.load(folder() / f"{'covtype' if name in _COVTYPE_PARTS else name}.npz") as arrays:
        X, y = arrays["X"].astype(np.float64), arrays["y"].astype(np.int64)
    return X, np.isin(y, _COVTYPE_PARTS[name]).astype(np.int64) if name in _COVTYPE_PARTS else y


def split(
    X: np.ndarray, y: np.ndarray, seed: int, scored: str = "test"
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X and y of the training rows, then of the rows to be scored ("test" or "validation"): 15:3:2, standardised."""
    train, validation, test = split_rows(len(X), seed)
    rows = test if scored == "test" else validation
    X_train, X_scored = standardised(X[train], X[rows])
    return X_train, y[train], X_scored, y[rows]
