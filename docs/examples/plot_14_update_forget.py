"""
Rows that come, and rows that must go
=====================================

You learn to append rows to a fitted model and to remove some for good, both without training.
"""

import matplotlib.pyplot as plt
import numpy as np

from nearfield import GPRegressor
from nearfield.colours import BLUE, GREY, ORANGE

rng = np.random.default_rng(0)


def level(hours):
    return 2 + np.sin(hours / 2) + 0.3 * np.sin(hours * 1.7)


hours = np.sort(rng.uniform(0, 30, 150))
measured = level(hours) + 0.1 * rng.standard_normal(150)
early = hours < 22
model = GPRegressor(random_state=0).fit(hours[early, None], measured[early])


def draw(title, known):
    _, ax = plt.subplots(figsize=(7.5, 2.8), layout="constrained")
    grid = np.linspace(0, 32, 400)[:, None]
    mean = model.predict(grid)
    low, high = model.predict_interval(grid, coverage=0.9)
    ax.fill_between(grid[:, 0], low, high, color=BLUE, alpha=0.25, linewidth=0)
    ax.plot(grid, mean, color=BLUE)
    ax.plot(grid, level(grid), color=GREY, linestyle="--", linewidth=1)
    ax.scatter(hours[known], measured[known], s=8, color=ORANGE)
    ax.set(title=title, xlabel="time, hours", ylabel="water level, m", ylim=(-0.2, 4))
    plt.show()


draw("as fitted", early)

# %%
# New measurements are appended. Length scales, noise and calibration stay; predictions know the new rows at once.

model.update(hours[~early, None], measured[~early])
draw("eight hours later", hours > 0)

# %%
# Then it turns out that the gauge was broken from hour 8 to hour 12, and these rows must go. They are named by their
# number in the order in which they were given, or by a mask.

broken = (hours > 8) & (hours < 12)
model.forget(broken)
draw("without the broken hours", ~broken)
print(model.summary_)

# %%
# A file that is saved from now on has nothing of these rows. What was learned from them, such as length scales, stays
# until the next fit.
