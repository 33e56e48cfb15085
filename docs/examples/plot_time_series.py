"""
A forecast: trend, season, and the past alone
=============================================

You learn to forecast a series with columns for the season and a linear trend, and to get error bars that are those of
forecasts, with ``leave_out="past"``.
"""

import matplotlib.pyplot as plt
import numpy as np

from nearfield import GPRegressor

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"


def season(days, period):
    """Where in the period each day is: sine and cosine (n, 2)."""
    angle = 2 * np.pi * np.asarray(days, dtype=float) / period
    return np.column_stack([np.sin(angle), np.cos(angle)])


def columns(days):
    return np.column_stack([days, season(days, 365.25)])


rng = np.random.default_rng(0)
days = np.arange(0, 6 * 365, 7.0)
phase = 2 * np.pi * days / 365.25
wander = np.cumsum(rng.normal(0, 0.12, len(days)))  # what no season explains
load = 50 + 0.004 * days + 6 * np.cos(phase) + 2 * np.cos(2 * phase) + wander + rng.normal(0, 0.5, len(days))
past = days < 5 * 365

# %%
# The default leaves single weeks out and predicts them from the weeks before *and after*: that is how well gaps can be
# filled. A forecast knows the past alone.

settings = {"mean": "linear", "random_state": 0}
gaps = GPRegressor(**settings).fit(columns(days[past]), load[past])
forecast = GPRegressor(leave_out="past", **settings).fit(columns(days[past]), load[past], times=days[past])
for name, model in (("all other weeks", gaps), ("weeks before", forecast)):
    scores = model.summary_.left_out
    print(f"given {name:16} RMSE {scores['rmse']:.2f} GW, CRPS {scores['crps']:.2f} GW")

# %%
# The forecast of the sixth year, with its error bars.

later = ~past
mean = forecast.predict(columns(days))
low, high = forecast.predict_interval(columns(days[later]), coverage=0.9)
figure, ax = plt.subplots(figsize=(9, 4), layout="constrained")
ax.scatter(days / 365, load, s=8, color=np.where(past, GREY, ORANGE), zorder=3)
ax.plot(days / 365, mean, color=BLUE, label="prediction")
ax.fill_between(days[later] / 365, low, high, color=BLUE, alpha=0.25, linewidth=0, label="90 % interval")
ax.axvline(5, color=GREY, linestyle="--", linewidth=1)
ax.set(xlabel="time, years", ylabel="load, GW", xlim=(2, 6.05))
ax.legend(frameon=False, loc="upper left")
plt.show()
inside = np.mean((low <= load[later]) & (load[later] <= high))
print(f"{inside:.0%} of the sixth year is inside of 90 % intervals")

# %%
# Left-out rows were predicted from all that is earlier, up to the week before. For error bars of forecasts a year ahead
# such rows would have to be farther away: ``buffer={0: 365}`` hides whatever is nearer in column 0, here the day.
