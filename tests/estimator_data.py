"""What the tests of the estimators share: small data and fits that take a moment."""

import numpy as np

from nearfield import GPRegressor


def quick(**arguments):
    return GPRegressor(**{"max_steps": 20, "refresh_every": 10, "random_state": 0, **arguments})


def small(n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)
