"""Data made by the package itself, for the demo and the tests: nothing is downloaded.

`robot_arm` is a table of joint angles of an arm with eight joints and the measured distance of its hand from a
workpiece. The arm is described by a few constants: the axis each joint turns about, how far it turns, the length of the
link behind it, and where the workpiece lies. Later links are shorter, so later joints matter less: the inputs differ in
relevance. The measurement is less exact when the arm is stretched out, so the noise differs from row to row.
"""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

JOINT_NAMES = tuple(f"joint_{i}" for i in range(1, 9))
"""Names of the eight input columns."""

# Each joint turns the rest of the arm about one axis of its own frame: 0 rolls about the link, 1 nods, 2 swings.
_AXIS = (2, 1, 1, 0, 1, 2, 0, 1)
# How far each joint turns, radians. Joint 3 is the elbow and bends one way only.
_LOW = np.deg2rad([-90.0, -60.0, 10.0, -60.0, -60.0, -45.0, -60.0, -45.0])
_HIGH = np.deg2rad([90.0, 30.0, 130.0, 60.0, 60.0, 45.0, 60.0, 45.0])
LINK_LENGTHS = np.array([0.10, 0.40, 0.35, 0.05, 0.25, 0.15, 0.05, 0.10])
"""Length of the link behind each joint, metres; joints 4 and 7 roll about the link they sit on and add little."""

WORKPIECE = np.array([0.9, 0.4, -0.3])
"""The distance of the hand from here is measured, metres from the base."""

# Standard deviation of the distance, metres: of a folded arm, and what is added when it is fully stretched out.
_NOISE_FOLDED, _NOISE_STRETCHED = 0.003, 0.060


def forward_kinematics(angles: Array) -> Array:
    """Compute where the links of the arm end.

    Parameters
    ----------
    angles : ndarray of shape (n, 8)
        Joint angles in radians, zero for an arm stretched out along the first coordinate.

    Returns
    -------
    ndarray of shape (n, 9, 3)
        Positions in metres of the base, of every link's end and so, last, of the hand.
    """
    angles = np.asarray(angles, dtype=np.float64)
    if angles.ndim != 2 or angles.shape[1] != len(JOINT_NAMES):
        raise ValueError(f"angles has shape {angles.shape}; (n, {len(JOINT_NAMES)}) is expected, one column a joint.")
    positions = np.zeros((len(angles), len(JOINT_NAMES) + 1, 3))
    frame = np.broadcast_to(np.eye(3), (len(angles), 3, 3))
    for j, (axis, length) in enumerate(zip(_AXIS, LINK_LENGTHS, strict=True)):
        frame = frame @ _rotation(axis, angles[:, j])
        positions[:, j + 1] = positions[:, j] + length * frame[:, :, 0]
    return positions


def noise_std(angles: Array) -> Array:
    """Compute how inexact the measured distance is, which is most for a stretched arm.

    Parameters
    ----------
    angles : ndarray of shape (n, 8)
        Joint angles in radians.

    Returns
    -------
    ndarray of shape (n,)
        Standard deviation of the distance in metres.
    """
    stretch = np.linalg.norm(forward_kinematics(angles)[:, -1], axis=1) / LINK_LENGTHS.sum()
    return _NOISE_FOLDED + _NOISE_STRETCHED * stretch**6


@overload
def robot_arm(
    n: int = ..., random_state: int | np.random.Generator | None = ..., *, return_noise: Literal[False] = ...
) -> tuple[Array, Array]: ...


@overload
def robot_arm(
    n: int = ..., random_state: int | np.random.Generator | None = ..., *, return_noise: Literal[True]
) -> tuple[Array, Array, Array]: ...


def robot_arm(
    n: int = 4000, random_state: int | np.random.Generator | None = 0, *, return_noise: bool = False
) -> tuple[Array, ...]:
    """Make joint angles of a robot arm and the measured distance of its hand from a workpiece.

    Parameters
    ----------
    n : int, default=4000
        Number of rows.
    random_state : int, Generator or None, default=0
        Seed or generator. The same seed gives the same rows.
    return_noise : bool, default=False
        Whether the standard deviation of the noise that was added to each row is returned, too.

    Returns
    -------
    X : ndarray of shape (n, 8)
        Joint angles in radians, uniform in the range of each joint; the columns are called `JOINT_NAMES`.
    y : ndarray of shape (n,)
        Distance in metres, with Gaussian noise of standard deviation `noise_std(X)`.
    std : ndarray of shape (n,)
        `noise_std(X)`, only with `return_noise=True`.

    Examples
    --------
    >>> from nearfield.datasets import robot_arm
    >>> X, y = robot_arm(100)
    >>> X.shape, y.shape
    ((100, 8), (100,))
    """
    if n < 1:
        raise ValueError(f"n is {n}; at least one row is expected.")
    rng = np.random.default_rng(random_state)
    angles = rng.uniform(_LOW, _HIGH, size=(n, len(JOINT_NAMES)))
    std = noise_std(angles)
    y = _distance(angles) + std * rng.standard_normal(n)
    return (angles, y, std) if return_noise else (angles, y)


def _distance(angles: Array) -> Array:
    """True distance (n,) of the hand from the workpiece."""
    return np.linalg.norm(forward_kinematics(angles)[:, -1] - WORKPIECE, axis=1)


def _rotation(axis: int, angle: Array) -> Array:
    """Rotations (n, 3, 3) by `angle` (n,) about coordinate `axis`."""
    first, second = (axis + 1) % 3, (axis + 2) % 3
    turn = np.zeros((len(angle), 3, 3))
    turn[:, axis, axis] = 1.0
    turn[:, first, first] = turn[:, second, second] = np.cos(angle)
    turn[:, second, first] = np.sin(angle)
    turn[:, first, second] = -turn[:, second, first]
    return turn
