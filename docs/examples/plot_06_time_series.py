"""
A forecast: trend, season, and the past alone
=============================================

You learn to forecast a series with columns for the season and a linear trend, and to get error bars that are those of
forecasts, with ``leave_out="past"`` and a buffer.
"""

import matplotlib.pyplot as plt
import numpy as np

from nearfield import GPRegressor
from nearfield.colours import BLUE, GREY, ORANGE


def season(days, period):
    """Where in the period each day is: sine and cosine (n, 2)."""
    angle = 2 * np.pi * np.asarray(days, dtype=float) / period
    return np.column_stack([np.sin(angle), np.cos(angle)])


def columns(days):
    return np.column_stack([days, season(days, 365.25)])


rng = np.random.default_rng(3)
days = np.arange(0, 6 * 365, 7.0)
phase = 2 * np.pi * days / 365.25
weather = np.zeros(len(days))  # goes on for some weeks, and nobody knows it a year ahead
for week in range(1, len(days)):
    weather[week] = 0.75 * weather[week - 1] + rng.normal(0, 0.5)
load = 50 + 0.004 * days + 6 * np.cos(phase) + 2 * np.cos(2 * phase) + weather
past = days < 5 * 365

# %%
# What is left out decides what error bars are for. The default predicts weeks from those before *and after*: so well
# can gaps be filled. ``leave_out="past"`` predicts them from the weeks before: so well is the next week known. A
# forecast for months ahead knows less still: with ``buffer={0: 60}`` left-out weeks do not see those within 60 days,
# column 0 being the day.

X, y, times = columns(days[past]), load[past], days[past]
gaps = GPRegressor(mean="linear", random_state=0).fit(X, y)
week = GPRegressor(mean="linear", leave_out="past", random_state=0).fit(X, y, times=times)
months = GPRegressor(mean="linear", leave_out="past", buffer={0: 60}, random_state=0).fit(X, y, times=times)

# %%
# All three forecast the sixth year. Their left-out scores, and what became of the forecast:

later = columns(days[~past])
for name, model in (("other weeks", gaps), ("weeks before", week), ("60 days before", months)):
    low, high = model.predict_interval(later, coverage=0.9)
    inside = np.mean((low <= load[~past]) & (load[~past] <= high))
    off = np.sqrt(np.mean((model.predict(later) - load[~past]) ** 2))
    promised = model.summary_.left_out["rmse"]
    print(f"given {name:15} left-out RMSE {promised:.2f} GW; sixth year {off:.2f} GW, {inside:.0%} inside of 90 %")

# %%
# Only the last one promised what came. It also relies less on the weather of the last weeks.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, model, title in zip(axes, (gaps, months), ("weeks left out", "60 days left out"), strict=True):
    low, high = model.predict_interval(later, coverage=0.9)
    ax.scatter(days / 365, load, s=9, color=np.where(past, GREY, ORANGE), zorder=3)
    ax.plot(days / 365, model.predict(columns(days)), color=BLUE, label="prediction")
    ax.fill_between(days[~past] / 365, low, high, color=BLUE, alpha=0.25, linewidth=0, label="90 % interval")
    ax.axvline(5, color=GREY, linestyle="--", linewidth=1)
    ax.set(title=title, xlabel="time, years", xlim=(3, 6.02))
axes[0].set_ylabel("load, GW")
axes[0].legend(frameon=False, loc="upper center", ncols=2)
plt.show()

# %%
# One series is one sample: whole months turn out above or below together, so that the share inside varies from series
# to series.
