"""
Bayesian optimisation with slopes in closed form
================================================

You learn to look for a minimum with few measurements: where to measure next, by expected improvement and its slope from
``predict_gradient``, and ``update`` between fits.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize
from scipy.stats import norm

from nearfield import GPRegressor
from nearfield.colours import BLUE, GREY, ORANGE

LOW, HIGH = np.array([-5.0, 0.0]), np.array([10.0, 15.0])


def branin(X):
    """A test function with three equal minima of 0.398."""
    a, b = X.T
    return (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10


# %%
# Expected improvement over the best value so far, and its slope: mean and standard deviation come with theirs.


def improvement(model, best):
    def negative(x):
        x = x[None]
        mean, std = (part[0] for part in model.predict(x, return_std=True, uncertainty="latent"))
        slope = model.predict_gradient(x, uncertainty="latent")
        std = max(std, 1e-12)
        z = (best - mean) / std
        value = std * (z * norm.cdf(z) + norm.pdf(z))
        return -value, norm.cdf(z) * slope.mean[0] - norm.pdf(z) * slope.std[0]

    return negative


def next_place(model, best, rng):
    starts = LOW + (HIGH - LOW) * rng.random((300, 2))
    mean, std = model.predict(starts, return_std=True, uncertainty="latent")
    z = (best - mean) / std
    start = starts[np.argmax(std * (z * norm.cdf(z) + norm.pdf(z)))]
    limits = list(zip(LOW, HIGH, strict=True))
    return minimize(improvement(model, best), start, jac=True, bounds=limits, options={"maxiter": 20}).x


# %%
# Forty places at random, then eighteen where the improvement is largest. The model is fitted anew after each six, in
# between ``update`` appends the measurement.

rng = np.random.default_rng(1)
X = LOW + (HIGH - LOW) * rng.random((40, 2))
y = branin(X)
first = len(X)
for number in range(18):
    if number % 6 == 0:
        model = GPRegressor(kernel="matern52", random_state=0).fit(X, np.log(y))
    place = next_place(model, np.log(y).min(), rng)
    X, y = np.vstack([X, place]), np.append(y, branin(place[None]))
    model.update(X[-1:], np.log(y[-1:]))
print(f"best of {first} at random: {y[:first].min():.3f}; of {len(y)} in all: {y.min():.3f}; the minimum: 0.398")

# %%
# New places gather around the three minima.

a, b = np.meshgrid(np.linspace(LOW[0], HIGH[0], 70), np.linspace(LOW[1], HIGH[1], 70))
values = np.log(branin(np.column_stack([a.ravel(), b.ravel()]))).reshape(a.shape)
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.9), layout="constrained")
image = axes[0].contourf(a, b, values, 20, cmap="Greys_r")
figure.colorbar(image, ax=axes[0], label="log of the function")
axes[0].scatter(*X[:first].T, s=14, color=BLUE, edgecolor="white", linewidth=0.5, label="at random")
axes[0].scatter(*X[first:].T, s=26, color=ORANGE, edgecolor="white", linewidth=0.5, label="chosen")
axes[0].set(xlabel="a, no unit", ylabel="b, no unit")
axes[0].legend(loc="upper center", ncols=2)
axes[1].plot(np.minimum.accumulate(y) - 0.3978, color=BLUE)
axes[1].axvline(first - 0.5, color=GREY, linestyle="--", linewidth=1)
axes[1].set(yscale="log", xlabel="measurements", ylabel="best so far, above the minimum")
plt.show()
