"""
A table with text, dates and gaps
=================================

You learn to fit a data frame as it is, to see what its columns became, and what they do to predictions.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from nearfield import GPRegressor
from nearfield.colours import BLUE
from nearfield.plots import PartialEffectDisplay

rng = np.random.default_rng(0)
n = 400
table = pd.DataFrame(
    {
        "area": rng.uniform(30, 120, n).round(),  # square metres
        "town": rng.choice(["Bonn", "Trier", "Ulm"], n, p=[0.5, 0.3, 0.2]),
        "balcony": rng.random(n) < 0.4,
        "let": pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 1400, n), unit="D"),
    }
)
years = (table["let"] - table["let"].min()).dt.days / 365
rent = table["area"] * (8 + 0.8 * years + 3 * (table["town"] == "Bonn")) + 40 * table["balcony"]
rent = rent + rng.normal(0, 40, n)
table.loc[rng.random(n) < 0.1, "area"] = np.nan  # the estate agent forgot
table.loc[rng.random(n) < 0.05, "town"] = None
print(table.head())

# %%
# Nothing needs to be prepared. What the columns became:

model = GPRegressor(random_state=0).fit(table, rent)
print(model.encoder_.feature_names)
print(model.summary_)

# %%
# What matters, and how: the mean prediction when a column is set to each of some values, over a sample of the rows. A
# gap is a level like others.

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
order = np.argsort(model.feature_importances_)
axes[0].barh(np.array(table.columns)[order], model.feature_importances_[order], color=BLUE)
axes[0].set(xlabel="log score lost when shuffled, nats")
for ax, column, label in zip(axes[1:], ("area", "town"), ("area, m²", "town"), strict=True):
    PartialEffectDisplay.from_estimator(model, column, n_rows=30, ax=ax)
    ax.set(xlabel=label, ylabel="rent, EUR a month")
plt.show()

# %%
# New rows may have gaps, too.

new = pd.DataFrame(
    {
        "area": [60, 60],
        "town": ["Bonn", None],
        "balcony": [True, False],
        "let": pd.to_datetime(["2024-06-01", "2024-06-01"]),
    }
)
mean, std = model.predict(new, return_std=True)
for row in range(2):
    print(f"{mean[row]:5.0f} EUR, standard deviation {std[row]:.0f} EUR")
