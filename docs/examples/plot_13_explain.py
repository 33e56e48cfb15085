"""
Why this prediction?
====================

You learn to name the training rows behind a prediction, and to find rows that are wrong.

The data are images of handwritten digits, eight by eight pixels.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from nearfield import GPClassifier
from nearfield.colours import BLUE, ORANGE

digits = load_digits()
some = np.random.default_rng(0).permutation(np.flatnonzero(np.isin(digits.target, (3, 8, 9))))
images, labels = digits.images[some], digits.target[some].copy()
X = images.reshape(len(images), 16, 4).mean(axis=2)  # means of four pixels in a line
train, test = np.arange(400), np.arange(400, len(some))
labels[7] = 8 if labels[7] != 8 else 3  # somebody typed the wrong label
model = GPClassifier(warp=False, random_state=0).fit(X[train], labels[train])
print(f"{(model.predict(X[test]) != labels[test]).mean():.1%} of the test images are taken for another digit")

# %%
# ``explain`` lists the training rows that change a prediction most, and by how much it would change without each. Of
# three test images the least certain is first.

reasons = model.explain(X[test], n_neighbours=4)
hard = np.argsort(reasons.prediction)[:3]
figure, axes = plt.subplots(3, 5, figsize=(8.5, 5.6), layout="constrained")
for line, number in zip(axes, hard, strict=True):
    line[0].imshow(images[test][number], cmap="Greys")
    said = model.predict(X[test][number : number + 1])[0]
    line[0].set_title(f"a {labels[test][number]}, taken for {said}\np = {reasons.prediction[number]:.2f}", fontsize=9)
    for ax, row, change in zip(line[1:], reasons.neighbours[number], reasons.changes[number], strict=True):
        ax.imshow(images[train][row], cmap="Greys")
        colour = BLUE if change < 0 else ORANGE
        ax.set_title(f"row {row}, a {labels[row]}\nwithout it {change:+.3f}", fontsize=9, color=colour)
for ax in axes.ravel():
    ax.set(xticks=[], yticks=[])
plt.show()

# %%
# Left-out predictions tell of rows that the others contradict: the label that was typed wrongly is among the first.

surprising = np.argsort(model.loo_.log_score)[:3]
for row in surprising:
    p = model.loo_.probability[row].max()
    print(f"row {row}: the label says {labels[row]}, the others {model.classes_[model.loo_.probability[row].argmax()]}"
          f" (p = {p:.2f})")  # fmt: skip
