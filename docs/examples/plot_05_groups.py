"""
Rows that belong together
=========================

You learn why rows of one patient must be left out together, and what happens to intervals if they are not.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from nearfield import GPRegressor
from nearfield.plots import CoverageDisplay


def visits(patients, rng):
    """Eight visits of each patient: age, weight and dose, and a blood value; every patient has a level of his own."""
    who = np.repeat(np.arange(patients), 8)
    age, weight = rng.uniform(20, 80, patients), rng.normal(75, 12, patients)
    level = rng.normal(0, 1.0, patients)
    dose = rng.uniform(0, 10, len(who))
    X = np.column_stack([age[who], weight[who], dose])
    return X, 5 + 0.02 * age[who] + np.sqrt(dose) + level[who] + rng.normal(0, 0.2, len(who)), who


rng = np.random.default_rng(0)
X, y, who = visits(50, rng)
new_X, new_y, _ = visits(50, rng)  # other patients
by_patient = GPRegressor(random_state=0).fit(X, y, groups=who)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the fit says that most rows have a near copy, and what to do about it
    by_row = GPRegressor(random_state=0).fit(X, y)

# %%
# Left out one by one, a visit is predicted from other visits of the same patient, whom the model knows by age and
# weight. For other patients such error bars are far too narrow. Left out together, they hold.

figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
for ax, model, title in zip(axes, (by_row, by_patient), ("rows left out", "patients left out"), strict=True):
    CoverageDisplay.from_estimator(model, new_X, new_y, name="visits of other patients", ax=ax)
    ax.set(title=title, xlabel="what intervals promise", ylabel="share of visits inside")
plt.show()

# %%
# The left-out scores of the summary tell the same without any new patient.

for name, model in (("rows", by_row), ("patients", by_patient)):
    off = np.sqrt(np.mean((model.predict(new_X) - new_y) ** 2))
    print(f"{name:8}: left-out RMSE {model.summary_.left_out['rmse']:.2f}, of other patients {off:.2f} mmol/l")
