"""
Three classes, and sets of classes
==================================

You learn to say which classes are possible for a row, with a chosen probability, and which columns matter.

The data are 178 Italian wines of three growers, with thirteen chemical measurements each.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from nearfield import GPClassifier
from nearfield.colours import BLUE, GREEN, GREY, ORANGE

wine = load_wine(as_frame=True)
columns = ["alcohol", "malic_acid", "color_intensity"]
X, grower = wine.data[columns], np.array(["A", "B", "C"])[wine.target]
order = np.random.default_rng(0).permutation(len(X))
train, test = order[:110], order[110:]
model = GPClassifier(random_state=0).fit(X.iloc[train], grower[train])
print(model.summary_)

# %%
# ``predict_set`` has the grower in the set with a probability of about 95 %. Most sets have one member; those of two
# say which wines are hard to tell apart.

inside = model.predict_set(X.iloc[test], coverage=0.95)
own = np.searchsorted(model.classes_, grower[test])
print(f"{inside[np.arange(len(test)), own].mean():.0%} of the sets have the right grower")
print(f"{(inside.sum(axis=1) == 1).mean():.0%} of them have nobody else")

# %%
# Wines with one possible grower, and with more.

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.9), layout="constrained")
p = model.predict_proba(X.iloc[test])
sure = inside.sum(axis=1) == 1
for k, colour in enumerate((BLUE, ORANGE, GREEN)):
    for many, marker in ((True, "o"), (False, "X")):
        some = (own == k) & (sure == many)
        label = f"grower {model.classes_[k]}" if many else None
        axes[0].scatter(
            X.iloc[test].loc[some, "alcohol"], X.iloc[test].loc[some, "color_intensity"],
            s=24 if many else 70, marker=marker, color=colour, edgecolor="white", linewidth=0.5, label=label,
        )  # fmt: skip
axes[0].scatter([], [], s=70, marker="X", color=GREY, label="more than one possible")
axes[0].set(xlabel="alcohol, % by volume", ylabel="colour intensity, no unit")
axes[0].legend(frameon=False)
order = np.argsort(model.feature_importances_)
axes[1].barh(np.array(columns)[order], model.feature_importances_[order], color=BLUE)
axes[1].set(xlabel="log score lost when the column is shuffled, nats")
plt.show()
