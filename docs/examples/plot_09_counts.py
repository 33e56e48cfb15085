"""
Counts with an exposure
=======================

You learn to predict how often something happens per hour, from records of different length, with intervals of whole
numbers.
"""

import matplotlib.pyplot as plt
import numpy as np

from nearfield import GPCountRegressor
from nearfield.colours import BLUE, GREEN, GREY, ORANGE


def rate(hour):
    """Calls an hour."""
    return 2 + 8 * np.exp(-((hour - 10) ** 2) / 6) + 5 * np.exp(-((hour - 17) ** 2) / 8)


rng = np.random.default_rng(0)
hour, length = rng.uniform(0, 24, 300), rng.choice([0.25, 0.5, 1.0, 3.0], 300)  # of the day; of the record
calls = rng.poisson(rate(hour) * length)
model = GPCountRegressor(random_state=0).fit(hour[:, None], calls, exposure=length)
print(model.summary_)

# %%
# The exposure is what expected counts are proportional to. ``exposure=1`` asks for calls in one hour.

grid = np.linspace(0, 24, 200)[:, None]
dist = model.predict_dist(grid, exposure=1.0)
low, high = dist.interval(0.9)
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ax.fill_between(grid[:, 0], low, high, step="mid", color=BLUE, alpha=0.25, linewidth=0, label="90 % of hours")
ax.plot(grid, dist.mean(), color=BLUE, label="expected")
ax.plot(grid, rate(grid), color=GREY, linestyle="--", label="truth")
ax.scatter(hour, calls / length, s=14 * length, color=ORANGE, alpha=0.6, label="records, larger if longer")
ax.set(xlabel="hour of the day", ylabel="calls an hour", ylim=(-0.5, 26))
ax.legend(frameon=False, fontsize=9)
plt.show()

# %%
# Whole distributions come with it: here of the calls in two hours, in the morning and at night.

counts = np.arange(0, 36)
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for at, colour in ((10.0, BLUE), (2.0, GREEN)):
    mass = model.predict_dist([[at]], exposure=2.0).pmf(counts[:, None])[:, 0]
    ax.vlines(counts, 0, mass, color=colour, linewidth=3, alpha=0.8, label=f"at {at:.0f} h")
ax.set(xlabel="calls in two hours", ylabel="probability", ylim=(0, None))
ax.legend(frameon=False)
plt.show()
night = model.predict_dist([[2.0]], exposure=2.0)
print(f"no call in two hours at night: {night.pmf(0)[0]:.3f}; dispersion {model.dispersion_:.0f} (large: Poisson)")
