"""
Two classes: probabilities, and where nothing is known
======================================================

You learn to map the probability of a class, and to see with ``support`` where the training rows say nothing.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from sklearn.datasets import make_moons

from nearfield import GPClassifier
from nearfield.colours import BLUE, ORANGE

BETWEEN = LinearSegmentedColormap.from_list("between", [ORANGE, "white", BLUE])

X, y = make_moons(300, noise=0.25, random_state=0)
labels = np.where(y == 1, "lower", "upper")
model = GPClassifier(random_state=0).fit(X, labels)
print(model.summary_)

# %%
# Between the moons probabilities go from one class to the other. Far from all rows they go back to the shares of the
# classes: the model says that it does not know, instead of going on with a line.

across, up = np.meshgrid(np.linspace(-3, 4, 90), np.linspace(-2.5, 3, 70))
grid = np.column_stack([across.ravel(), up.ravel()])
lower = model.predict_proba(grid)[:, list(model.classes_).index("lower")].reshape(across.shape)
known = model.support(grid).reshape(across.shape)
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.9), sharey=True, layout="constrained")
image = axes[0].pcolormesh(across, up, lower, cmap=BETWEEN, vmin=0, vmax=1, shading="auto")
figure.colorbar(image, ax=axes[0], label="probability of 'lower'")
image = axes[1].pcolormesh(across, up, known, cmap="Greys_r", vmin=0, vmax=1, shading="auto")
figure.colorbar(image, ax=axes[1], label="support")
for ax in axes:
    for name, colour in (("upper", ORANGE), ("lower", BLUE)):
        own = labels == name
        ax.scatter(*X[own].T, s=12, color=colour, edgecolor="white", linewidth=0.4, label=name)
    ax.set(xlabel="first column, no unit")
axes[0].set_ylabel("second column, no unit")
axes[0].legend(frameon=True, loc="upper right")
plt.show()

# %%
# Of left-out rows there are probabilities too. Grouped by them, the share of rows that are 'lower' should be as
# predicted.

p = model.loo_.probability[:, list(model.classes_).index("lower")]
for low, high in ((0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1)):
    own = (p >= low) & (p <= high)
    print(f"{own.sum():3} rows: predicted {p[own].mean():.2f}, observed {(labels[own] == 'lower').mean():.2f}")
