"""
Averages over areas
===================

You learn to predict the average over a field or a polygon with the right standard error, which is neither that of a
point nor that divided by the root of the number of points.
"""

import matplotlib.pyplot as plt
import numpy as np

from nearfield import GPRegressor
from nearfield.colours import BLUE, GREY, ORANGE, SEQUENTIAL

rng = np.random.default_rng(0)
places = rng.uniform(0, 10, (200, 2))


def zinc(at):
    return 3 + np.sin(at[:, 0]) * np.cos(0.7 * at[:, 1])


model = GPRegressor(coordinates=[0, 1], random_state=0).fit(places, zinc(places) + 0.2 * rng.normal(size=200))

# %%
# Square fields of different size around the same place. Points of a field are predicted jointly: nearby ones err
# together, so that the average of a small field is hardly better known than a point. Dividing by the root of a hundred
# points would promise far too much.

centre, sides = np.array([[5.0, 5.0]]), np.array([0.1, 0.25, 0.5, 1, 2, 4, 8])
found = np.array([model.predict_block(centre, size=float(side)) for side in sides])[:, :, 0]
_, point = model.predict(centre, return_std=True, uncertainty="latent")
figure, ax = plt.subplots(figsize=(6.5, 3.9), layout="constrained")
ax.plot(sides, found[:, 1], "o-", color=BLUE, label="predict_block")
ax.axhline(point[0], color=GREY, linestyle="--", label="of a point")
ax.axhline(point[0] / 10, color=ORANGE, linestyle=":", label="of a point, over the root of 100")
ax.set(xscale="log", yscale="log", xlabel="side of the field, km", ylabel="standard error of the average, mg/kg")
ax.legend(frameon=False)
plt.show()

# %%
# Polygons, such as parishes, are passed as their corners; shapes of shapely work too, holes included.

parishes = {
    "north": [[1, 6], [5, 5.5], [6, 9], [2, 9.5]],
    "south": [[1, 1], [4, 0.5], [5, 4], [2, 4.5]],
    "east": [[6, 2], [9.5, 1], [9, 8], [7, 6]],
}
mean, std = model.predict_block(list(parishes.values()))
side = np.linspace(0, 10, 60)
east, north = np.meshgrid(side, side)
values = model.predict(np.column_stack([east.ravel(), north.ravel()])).reshape(east.shape)
figure, ax = plt.subplots(figsize=(5.6, 4.2), layout="constrained")
image = ax.pcolormesh(east, north, values, cmap=SEQUENTIAL, shading="auto")
figure.colorbar(image, ax=ax, label="zinc, mg/kg")
for (name, corners), average, error in zip(parishes.items(), mean, std, strict=True):
    corners = np.array(corners)
    ax.fill(*corners.T, facecolor="none", edgecolor="white", linewidth=1.5)
    ax.text(
        *corners.mean(axis=0), f"{name}\n{average:.2f} ± {error:.2f}", ha="center", va="center", fontsize=9,
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "boxstyle": "round,pad=0.2"},
    )  # fmt: skip
ax.set(xlabel="east, km", ylabel="north, km", aspect="equal")
plt.show()
