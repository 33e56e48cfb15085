"""
Several outputs, some of them missing
=====================================

You learn how an output that is measured often helps to predict one that is measured seldom.
"""

import matplotlib.pyplot as plt
import numpy as np

from nearfield import GPRegressor
from nearfield.colours import BLUE, GREY, ORANGE


def oxygen(t):
    return np.sin(1.3 * t) + 0.3 * np.sin(4 * t)


def nitrate(t):
    return -0.8 * oxygen(t) + 0.1 * t


rng = np.random.default_rng(0)
t = np.sort(rng.uniform(0, 10, 120))
Y = np.column_stack([oxygen(t), nitrate(t)]) + 0.08 * rng.standard_normal((120, 2))
rare = np.zeros(120, bool)
rare[rng.choice(120, 20, replace=False)] = True
Y[~rare, 1] = np.nan  # nitrate takes a laboratory
print(f"oxygen: {np.isfinite(Y[:, 0]).sum()} measurements, nitrate: {np.isfinite(Y[:, 1]).sum()}")

# %%
# Both together, and nitrate alone.

together = GPRegressor(random_state=0).fit(t[:, None], Y)
alone = GPRegressor(random_state=0).fit(t[rare, None], Y[rare, 1])
print(together.summary_)

# %%
# Together, what oxygen does between the measurements of nitrate is known, and so is most of nitrate.

grid = np.linspace(0, 10, 300)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), sharey=True, layout="constrained")
for ax, model, title in zip(axes, (alone, together), ("nitrate alone", "with oxygen"), strict=True):
    low, high = model.predict_interval(grid, coverage=0.9, uncertainty="latent")
    mean = model.predict(grid)
    if mean.ndim == 2:
        low, high, mean = low[:, 1], high[:, 1], mean[:, 1]
    off = np.sqrt(np.mean((mean - nitrate(grid[:, 0])) ** 2))
    ax.fill_between(grid[:, 0], low, high, color=BLUE, alpha=0.25, linewidth=0, label="90 % of the function")
    ax.plot(grid, mean, color=BLUE, label="prediction")
    ax.plot(grid, nitrate(grid), color=GREY, linestyle="--", label="truth")
    ax.scatter(t, Y[:, 1], s=18, color=ORANGE, zorder=3, label="measurements")
    ax.set(title=f"{title}: {off:.2f} mg/l off", xlabel="time, days")
axes[0].set_ylabel("nitrate, mg/l above the mean")
axes[0].legend(frameon=False, fontsize=9)
plt.show()

# %%
# Errors of the two go together, which matters for anything that is computed from both. The correlation of both at a
# time when neither was measured:

_, covariance = together.predict([[3.0]], return_cov=True, uncertainty="latent")
spread = np.sqrt(np.diag(covariance[0]))
print(f"correlation {covariance[0, 0, 1] / spread.prod():.2f}")
