"""
A first fit, with intervals
===========================

You learn to fit a model, to draw its prediction with intervals, and to tell the two kinds of error bars apart: those of
a new measurement, and those of the function itself.
"""

import matplotlib.pyplot as plt
import numpy as np

from nearfield import GPRegressor
from nearfield.colours import BLUE, GREY, ORANGE

rng = np.random.default_rng(0)


def truth(x):
    return np.sin(2 * x) + 0.3 * x


x = np.concatenate([rng.uniform(-4, 0.5, 70), rng.uniform(2, 4, 50)])  # nothing is measured from 0.5 to 2
y = truth(x) + 0.2 * rng.standard_normal(len(x))

# %%
# One call fits: no kernel, no number of neighbours and no noise level need to be chosen.

model = GPRegressor(random_state=0).fit(x[:, None], y)
print(model.summary_)

# %%
# ``predict_interval`` gives intervals for new measurements. With ``uncertainty="latent"`` they are for the function,
# without the noise of a measurement: narrow where there are many points, as wide as the others where there are none.

grid = np.linspace(-5, 6, 400)[:, None]
mean = model.predict(grid)
figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
for kind, label, shade in (("observation", "a new measurement", 0.2), ("latent", "the function", 0.35)):
    low, high = model.predict_interval(grid, coverage=0.9, uncertainty=kind)
    ax.fill_between(grid[:, 0], low, high, color=BLUE, alpha=shade, linewidth=0, label=f"90 % interval of {label}")
ax.plot(grid, mean, color=BLUE, label="prediction")
ax.plot(grid, truth(grid), color=GREY, linestyle="--", label="truth")
ax.scatter(x, y, s=12, color=ORANGE, zorder=3, label="measurements")
ax.set(xlabel="x, metres", ylabel="y, volts", ylim=(-4, 4.5))
ax.legend(ncols=2, frameon=False, loc="upper left")
plt.show()

# %%
# Beyond the measurements the prediction goes back to their mean, and error bars grow to their spread. ``support`` says
# where that is: 1 where much is known, 0 where nothing is.

print(model.support([[-2.0], [1.2], [20.0]]).round(2))
