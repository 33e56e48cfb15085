"""
A map: mean, simulations, and where nothing is known
====================================================

You learn to make a map from scattered measurements, and why a map of means is not what the ground looks like.
"""

import matplotlib.pyplot as plt
import numpy as np

from nearfield import GPRegressor
from nearfield.colours import SEQUENTIAL, SPREAD
from nearfield.plots import VariogramDisplay

# %%
# Three hundred boreholes in a square of ten kilometres, none in the north-east. The depth of a layer is made of waves
# of many lengths.

rng = np.random.default_rng(3)
waves, phases = rng.normal(0, 1.1, (60, 2)), rng.uniform(0, 2 * np.pi, 60)


def depth(places):
    return 100 + 4 * np.cos(places @ waves.T + phases).sum(axis=1) / np.sqrt(30)


places = rng.uniform(0, 10, (450, 2))
places = places[places.sum(axis=1) < 15][:300]
measured = depth(places) + rng.normal(0, 0.5, len(places))
model = GPRegressor(coordinates=[0, 1], random_state=0).fit(places, measured)
print(model.summary_)

# %%
# Kriging mean, its standard error, and support.

side = np.linspace(0, 10, 60)
east, north = np.meshgrid(side, side)
grid = np.column_stack([east.ravel(), north.ravel()])
mean, std = model.predict(grid, return_std=True, uncertainty="latent")
shades = {"cmap": SEQUENTIAL, "vmin": measured.min(), "vmax": measured.max(), "shading": "auto"}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.5), sharey=True, layout="constrained")
panels = (
    (mean, "depth, m", shades),
    (std, "standard error, m", {"cmap": SPREAD, "vmin": 0, "shading": "auto"}),
    (model.support(grid), "support", {"cmap": "Greys_r", "vmin": 0, "vmax": 1, "shading": "auto"}),
)
for ax, (values, title, style) in zip(axes, panels, strict=True):
    image = ax.pcolormesh(east, north, values.reshape(east.shape), **style)
    figure.colorbar(image, ax=ax, shrink=0.8)
    ax.scatter(*places.T, s=3, color="white", edgecolor="black", linewidth=0.3)
    ax.set(title=title, xlabel="east, km", aspect="equal")
axes[0].set_ylabel("north, km")
plt.show()

# %%
# ``sample_y`` draws whole maps that agree with the boreholes and are as rough as the model says. Each is one way that
# the ground may look like.

maps = model.sample_y(grid, 100, random_state=0, uncertainty="latent")
figure, axes = plt.subplots(1, 3, figsize=(11, 3.3), sharey=True, layout="constrained")
for number, ax in enumerate(axes):
    image = ax.pcolormesh(east, north, maps[:, number].reshape(east.shape), **shades)
    ax.set(title=f"simulation {number + 1}", xlabel="east, km", aspect="equal")
axes[0].set_ylabel("north, km")
figure.colorbar(image, ax=axes, shrink=0.8, label="depth, m")
plt.show()

# %%
# Whatever is computed from simulations has the right spread. The deepest point of the map, for example: the maximum of
# the means is too low.

deepest = maps.max(axis=0)
print(f"maximum of the means {mean.max():.1f} m; of simulations {np.quantile(deepest, [0.05, 0.5, 0.95]).round(1)} m")
print(f"the truth on this grid: {depth(grid).max():.1f} m")

# %%
# The variogram of the measurements beside that of the model, which was learned from left-out measurements.

ax = VariogramDisplay.from_estimator(model, max_lag=6).ax_
ax.set(xlabel="distance, km", ylabel="semivariance, m²")
plt.show()
