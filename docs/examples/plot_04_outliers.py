"""
Measurements that went wrong
============================

You learn what outliers do to a fit, and how ``likelihood="student_t"`` finds them and leaves them aside.
"""

import matplotlib.pyplot as plt
import numpy as np

from nearfield import GPRegressor
from nearfield.colours import BLUE, GREEN, GREY, ORANGE

rng = np.random.default_rng(1)
x = np.sort(rng.uniform(0, 10, 200))
truth = np.sin(x) + 0.2 * x
y = truth + 0.1 * rng.standard_normal(len(x))
wrong = np.zeros(len(x), bool)
wrong[rng.choice(len(x), 10, replace=False)] = True
y[wrong] += rng.uniform(2, 5, 10)  # every twentieth sensor reading is far too high

gaussian = GPRegressor(random_state=0).fit(x[:, None], y)
robust = GPRegressor(likelihood="student_t", random_state=0).fit(x[:, None], y)

# %%
# With Gaussian noise the fit takes all readings at their word and follows the wrong ones. With Student-t noise a
# reading that nothing around it supports hardly counts. Error bars are those of a new reading, which may be wrong too.

grid = np.linspace(0, 10, 300)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
for ax, model, title in zip(axes, (gaussian, robust), ("Gaussian noise", "Student-t noise"), strict=True):
    low, high = model.predict_interval(grid, coverage=0.9)
    ax.fill_between(grid[:, 0], low, high, color=BLUE, alpha=0.2, linewidth=0, label="90 % of new readings")
    ax.plot(grid, model.predict(grid), color=BLUE, label="prediction")
    ax.plot(x, truth, color=GREY, linestyle="--", label="truth")
    ax.scatter(x, y, s=10, color=np.where(wrong, ORANGE, GREEN), alpha=0.8)
    off = np.sqrt(np.mean((model.predict(x[:, None]) - truth) ** 2))
    ax.set(title=f"{title}: {off:.2f} °C off the truth", xlabel="time, hours")
axes[0].set_ylabel("temperature, °C")
axes[0].legend(frameon=False, loc="upper left")
plt.show()

# %%
# Left-out residuals tell which measurements those were: here all beyond five times the noise.

residual = robust.loo_.residual
found = np.abs(residual) > 5 * robust.noise_std_
print(f"{found.sum()} found, {(found & wrong).sum()} of the {wrong.sum()} that are wrong; df = {robust.df_:.1f}")
