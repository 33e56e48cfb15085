"""
Noise that differs from row to row
==================================

You learn that error bars follow the noise of the neighbourhood, without anything to set.
"""

import matplotlib.pyplot as plt
import numpy as np

from nearfield import GPRegressor
from nearfield.colours import BLUE, GREY, ORANGE


def noise(x):
    return 0.05 + 0.5 * np.exp(-((x - 6) ** 2) / 2)


rng = np.random.default_rng(0)
x = rng.uniform(0, 10, 700)
y = np.sin(x) + noise(x) * rng.standard_normal(len(x))
calibrated = GPRegressor(k=64, random_state=0).fit(x[:, None], y)
plain = GPRegressor(k=64, predictive="plain", random_state=0).fit(x[:, None], y)

# %%
# The trained model has one noise level. The calibrated predictive, the default, widens it where the neighbours differ
# more from each other than the model expects, and narrows it where they differ less. How much is fitted on left-out
# rows.

grid = np.linspace(0, 10, 300)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
mean, std = calibrated.predict(grid, return_std=True)
low, high = calibrated.predict_interval(grid, coverage=0.9)
axes[0].scatter(x, y, s=5, color=GREY, alpha=0.6, label="measurements")
axes[0].fill_between(grid[:, 0], low, high, color=BLUE, alpha=0.25, linewidth=0, label="90 % interval")
axes[0].plot(grid, mean, color=BLUE, label="prediction")
axes[0].set(xlabel="position, mm", ylabel="signal, mV")
axes[0].legend(frameon=False)
axes[1].plot(grid, noise(grid), color=GREY, linestyle="--", label="truth")
axes[1].plot(grid, std, color=BLUE, label="calibrated")
axes[1].plot(grid, plain.predict(grid, return_std=True)[1], color=ORANGE, label="plain")
axes[1].set(xlabel="position, mm", ylabel="standard deviation, mV", ylim=(0, None))
axes[1].legend(frameon=False)
plt.show()

# %%
# Left-out scores say what it is worth: the mean negative log density, and the CRPS in units of the target. Both are
# better where they are smaller.

for name, model in (("calibrated", calibrated), ("plain", plain)):
    scores = model.summary_.left_out
    print(f"{name:10}  NLL {scores['nll']:6.3f}   CRPS {scores['crps']:.4f} mV")
