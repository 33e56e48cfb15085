"""The robot arm is a rigid arm, its noise is the one stated, and a seed fixes every number."""

import numpy as np
import pytest
from scipy import stats

from nearfield.datasets import JOINT_NAMES, LINK_LENGTHS, WORKPIECE, forward_kinematics, noise_std, robot_arm


def test_stretched_arm_reaches_the_sum_of_its_links():
    hand = forward_kinematics(np.zeros((1, 8)))[0, -1]
    np.testing.assert_allclose(hand, [LINK_LENGTHS.sum(), 0, 0], atol=1e-15)


def test_links_keep_their_length_in_every_pose():
    X, _ = robot_arm(500)
    lengths = np.linalg.norm(np.diff(forward_kinematics(X), axis=1), axis=2)
    np.testing.assert_allclose(lengths, np.broadcast_to(LINK_LENGTHS, lengths.shape), rtol=1e-13)


def test_first_joint_swings_the_whole_arm_about_the_vertical():
    X, _ = robot_arm(50)
    turned = X.copy()
    turned[:, 0] += 0.7
    before, after = forward_kinematics(X), forward_kinematics(turned)
    c, s = np.cos(0.7), np.sin(0.7)
    np.testing.assert_allclose(after, before @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]), atol=1e-14)


@pytest.mark.parametrize("joint", range(1, 8))
def test_a_joint_moves_nothing_before_it(joint):
    X, _ = robot_arm(20)
    turned = X.copy()
    turned[:, joint] += 0.3
    before, after = forward_kinematics(X), forward_kinematics(turned)
    np.testing.assert_array_equal(after[:, : joint + 1], before[:, : joint + 1])
    assert np.abs(after[:, -1] - before[:, -1]).max() > 1e-3


def test_noise_has_the_stated_standard_deviation():
    X, y, std = robot_arm(20_000, return_noise=True)
    np.testing.assert_array_equal(std, noise_std(X))
    z = (y - np.linalg.norm(forward_kinematics(X)[:, -1] - WORKPIECE, axis=1)) / std
    quiet, loud = std < np.quantile(std, 0.2), std > np.quantile(std, 0.8)
    for group in (quiet, loud):
        assert z[group].std() == pytest.approx(1.0, abs=0.05)
        assert stats.kstest(z[group], "norm").pvalue > 1e-3


def test_noise_varies_much_and_grows_with_the_stretch_alone():
    X, _, std = robot_arm(2000, return_noise=True)
    assert np.quantile(std, 0.95) > 5 * np.quantile(std, 0.05)
    stretch = np.linalg.norm(forward_kinematics(X)[:, -1], axis=1)
    order = np.argsort(stretch)
    assert np.all(np.diff(std[order]) > 0)
    # Smooth: neighbouring slopes differ little, so there is no kink.
    near = forward_kinematics(np.linspace(0, 1, 200)[:, None] * X[:1])[:, -1]
    slopes = np.gradient(noise_std(np.linspace(0, 1, 200)[:, None] * X[:1]), np.linalg.norm(near, axis=1))
    assert np.abs(np.diff(slopes[2:-2])).max() < 0.1 * np.abs(slopes).max()


def test_a_seed_fixes_every_number():
    first, again, other = robot_arm(50, 7), robot_arm(50, 7), robot_arm(50, 8)
    for a, b, c in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.all(a != c)
    assert robot_arm(3, 0)[1].tolist() == pytest.approx(robot_arm(3, np.random.default_rng(0))[1].tolist(), abs=0)


def test_shapes_and_names():
    X, y, std = robot_arm(12, return_noise=True)
    assert (X.shape, y.shape, std.shape) == ((12, 8), (12,), (12,))
    assert X.dtype == y.dtype == std.dtype == np.float64
    assert tuple(f"joint_{i}" for i in range(1, 9)) == JOINT_NAMES


def test_misuse_is_named():
    with pytest.raises(ValueError, match="n is 0"):
        robot_arm(0)
    with pytest.raises(ValueError, match=r"shape \(8,\); \(n, 8\)"):
        forward_kinematics(np.zeros(8))
