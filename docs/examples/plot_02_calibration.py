"""
Do the error bars hold?
=======================

You learn to look at calibration: of training rows that were left out, which costs nothing, and of test rows.

The data are those of the diabetes study that scikit-learn ships: 442 patients, ten measurements, and how far the
disease had gone a year later.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from nearfield import GPRegressor
from nearfield.plots import CoverageDisplay, LeftOutResidualDisplay, PITDisplay

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
order = np.random.default_rng(0).permutation(len(y))
train, test = order[:300], order[300:]
model = GPRegressor(random_state=0).fit(X.iloc[train], y.iloc[train])
print(model.summary_)

# %%
# Each training row was predicted from the others. The probability that such a prediction gave to values below what was
# observed, the PIT, is spread evenly if predictive distributions are right. High bars at both ends would mean that
# intervals are too narrow. The grey band is where 95 % of bars are if all is well.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
PITDisplay.from_estimator(model, bins=10, ax=axes[0])
CoverageDisplay.from_estimator(model, ax=axes[1])
plt.show()

# %%
# Error bars were set on left-out rows, so their overall coverage is close by construction. Test rows are the judge.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
PITDisplay.from_estimator(model, X.iloc[test], y.iloc[test], bins=10, ax=axes[0])
CoverageDisplay.from_estimator(model, X.iloc[test], y.iloc[test], ax=axes[1])
plt.show()
low, high = model.predict_interval(X.iloc[test], coverage=0.9)
print(f"{np.mean((low <= y.iloc[test]) & (y.iloc[test] <= high)):.0%} of the test rows are inside of 90 % intervals")

# %%
# Residuals over the prediction tell whether the model is wrong somewhere: the orange means should be near zero.

ax = LeftOutResidualDisplay.from_estimator(model).ax_
ax.set(xlabel="predicted progression, score", ylabel="observed less predicted, score")
plt.show()
