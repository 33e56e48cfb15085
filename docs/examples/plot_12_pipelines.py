"""
In scikit-learn's pipelines and searches
========================================

You learn to put the estimators behind a ``ColumnTransformer``, to search settings, and to get intervals out of a
pipeline.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from nearfield import GPRegressor
from nearfield.colours import BLUE, ORANGE

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X = X[["age", "sex", "bmi", "bp", "s5"]]
train, test = np.arange(len(y)) % 3 != 0, np.arange(len(y)) % 3 == 0

# %%
# Scaling is not needed: inputs are standardised by the fit. What is made here is what only you can know, such as that
# ``sex`` is a level although it is a number. (``GPRegressor(categorical_features=["sex"])`` does the same.)

prepared = ColumnTransformer(
    [
        ("levels", OneHotEncoder(drop="if_binary"), ["sex"]),
        ("numbers", FunctionTransformer(feature_names_out="one-to-one"), ["age", "bmi", "bp", "s5"]),
    ]
)
pipe = Pipeline([("columns", prepared), ("gp", GPRegressor(random_state=0))])

# %%
# A search over settings. The scorer is the mean log density, which judges error bars too; the default R² would look at
# means alone.


def log_density(pipe, X, y):
    return pipe[-1].log_score(pipe[:-1].transform(X), y)


grid = {"gp__mean": ["constant", "linear"]}
search = GridSearchCV(pipe, grid, scoring=log_density, cv=3).fit(X[train], y[train])
for settings, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    print(settings, round(score, 3))

# %%
# Everything beyond ``predict`` is a method of the last step, which wants what the steps before it make of the rows.

best = search.best_estimator_
rows = best[:-1].transform(X[test])
mean = best.predict(X[test])
low, high = best[-1].predict_interval(rows, coverage=0.9)
order = np.argsort(mean)
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.vlines(np.arange(len(mean)), low[order], high[order], color=BLUE, alpha=0.3, label="90 % interval")
ax.plot(mean[order], color=BLUE, label="prediction")
inside = (low <= y[test]) & (y[test] <= high)
ax.scatter(np.arange(len(mean)), y[test].to_numpy()[order], s=10, color=ORANGE, label="observed", zorder=3)
ax.set(xlabel="test patients, by prediction", ylabel="progression of the disease, score")
ax.legend(frameon=False, loc="upper left")
ax.set_title(f"{inside.mean():.0%} inside")
plt.show()

# %%
# Folds are not needed to compare a few settings: ``summary_.left_out`` has left-out scores of each fit, at no cost.

print(best[-1].summary_.left_out)
