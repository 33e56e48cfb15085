"""Displays: the numbers behind them are tested in test_diagnostics.py; here, that these are what is drawn."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
from estimator_data import counted, quick, quick_classifier, quick_counts, small

from nearfield import plots

matplotlib = pytest.importorskip("matplotlib", reason="the displays need matplotlib")
matplotlib.use("Agg")

import matplotlib.dates  # noqa: E402
import matplotlib.pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fitted():
    X, y = small(150, 2)
    return quick().fit(X, y), X, y


@pytest.fixture(scope="module")
def mapped():
    X, y = small(150, 2)
    return quick(coordinates=[0, 1]).fit(X, y)


def test_pit_bars_are_the_histogram(fitted):
    model, X, y = fitted
    display = plots.PITDisplay.from_estimator(model, X, y, bins=10)
    u = model.predict_dist(X).cdf(y)
    heights = [bar.get_height() for bar in display.bars_]
    np.testing.assert_allclose(heights, np.histogram(u, np.linspace(0, 1, 11), density=True)[0], rtol=1e-9)
    assert display.ax_.figure is display.figure_
    assert display.line_.get_ydata()[0] == 1


def test_coverage_line_is_the_share_inside(fitted):
    model, X, y = fitted
    display = plots.CoverageDisplay.from_estimator(model, X, y, levels=[0.3, 0.8])
    ends = [model.predict_interval(X, level) for level in (0.3, 0.8)]
    np.testing.assert_allclose(display.line_.get_ydata(), [np.mean((low <= y) & (y <= high)) for low, high in ends])
    np.testing.assert_array_equal(display.line_.get_xdata(), [0.3, 0.8])


def test_left_out_rows_are_shown_without_test_rows(fitted):
    model = fitted[0]
    display = plots.LeftOutResidualDisplay.from_estimator(model)
    np.testing.assert_allclose(display.residual, model.loo_.residual)
    np.testing.assert_allclose(display.points_.get_offsets(), np.stack([model.loo_.mean, model.loo_.residual], axis=1))
    over = plots.LeftOutResidualDisplay.from_estimator(model, column=1)
    assert over.ax_.get_xlabel() == "x1"


def test_columns_of_dates_and_levels_have_axes_of_their_own():
    pd = pytest.importorskip("pandas", reason="columns of dates come as data frames")
    rng = np.random.default_rng(0)
    days, town = rng.integers(0, 900, 90), rng.choice(["Bonn", "Ulm", "Trier"], 90)
    X = pd.DataFrame({"sold": pd.Timestamp("2021-01-01") + pd.to_timedelta(days, unit="D"), "town": town})
    model = quick().fit(X, days / 300 + (town == "Ulm") + 0.1 * rng.normal(size=90))
    over, effect = (
        kind.from_estimator(model, column="sold") for kind in (plots.LeftOutResidualDisplay, plots.PartialEffectDisplay)
    )
    for display in (over, effect):
        assert isinstance(display.ax_.xaxis.get_major_formatter(), matplotlib.dates.ConciseDateFormatter)
    towns = plots.LeftOutResidualDisplay.from_estimator(model, column="town")
    assert [part["centre"] for part in towns.bins] == list(towns.ticks)
    at = [number for number, name in towns.ticks.items() if name == "Ulm"]
    assert towns.bins[at[0]]["residual"] == pytest.approx(towns.residual[towns.x == at[0]].mean())


def test_predictions_and_estimators_show_the_same(fitted):
    model, X, y = fitted
    dist = model.predict_dist(X)
    for kind, what in ((plots.PITDisplay, "shares"), (plots.CoverageDisplay, "shares")):
        np.testing.assert_array_equal(
            getattr(kind.from_predictions(y, dist), what), getattr(kind.from_estimator(model, X, y), what)
        )
    residuals = plots.LeftOutResidualDisplay.from_predictions(y, dist)
    np.testing.assert_allclose(residuals.residual, y - model.predict(X))


def test_axes_that_are_given_are_used(fitted):
    model, X, y = fitted
    _, ax = plt.subplots()
    display = plots.PITDisplay.from_estimator(model, X, y, ax=ax)
    assert display.ax_ is ax
    _, other = plt.subplots()
    assert display.plot(ax=other, name="again").ax_ is other
    assert "again" in [text.get_text() for text in other.get_legend().get_texts()]


def test_counts_have_a_pit_and_coverage():
    X, y, _ = counted(100)
    model = quick_counts().fit(X, y, exposure=np.full(100, 2.0))
    plots.PITDisplay.from_estimator(model, X, y, exposure=2.0)
    plots.CoverageDisplay.from_estimator(model)
    with pytest.raises(ValueError, match="exposure"):
        plots.PITDisplay.from_estimator(model, X, y)


def test_effects_of_numbers_and_classes(fitted):
    model, X, y = fitted
    display = plots.PartialEffectDisplay.from_estimator(model, 0, points=5, n_rows=20)
    assert len(display.line_.get_xdata()) == 5
    np.testing.assert_array_equal(display.line_.get_ydata(), display.effect.mean[:, 0])
    classes = quick_classifier().fit(X, np.where(y > 0, "up", "down"))
    shown = plots.PartialEffectDisplay.from_estimator(classes, 0, points=5, n_rows=20)
    assert shown.ax_.get_ylabel() == "P(up)"
    with pytest.raises(ValueError, match="output is 5"):
        plots.PartialEffectDisplay.from_estimator(classes, 0, output=5)


def test_k_curve_marks_the_k_in_use(fitted):
    display = plots.KCurveDisplay.from_estimator(quick(k=8).fit(*fitted[1:]), score="rmse")
    assert display.chosen_.get_xdata()[0] == 8
    assert 8 in display.ks
    with pytest.raises(ValueError, match="score is 'brier'"):
        plots.KCurveDisplay.from_estimator(fitted[0], score="brier")


def test_variograms_and_maps(mapped):
    display = plots.VariogramDisplay.from_estimator(mapped)
    np.testing.assert_allclose(display.line_.get_ydata(), mapped.variogram(display.line_.get_xdata()))
    for what in ("mean", "std", "residual"):
        shown = plots.MapDisplay.from_estimator(mapped, what, size=8)
        assert shown.ax_.get_xlabel() == "x0"
    grid = plots.MapDisplay.from_estimator(mapped, size=8).grid
    np.testing.assert_allclose(grid.mean[3, 5], mapped.predict([[grid.x[5], grid.y[3]]])[0])


def test_maps_of_places_of_ones_own(mapped):
    X, y = small(150, 2)
    mean, std = mapped.predict(X, return_std=True)
    for what, values in (("mean", mean), ("std", std), ("residual", y - mean)):
        display = plots.MapDisplay.from_predictions(X, values, what, columns=("east", "north"), target="depth")
        np.testing.assert_allclose(np.sort(display.image_.get_array()), np.sort(values))
        assert display.ax_.get_ylabel() == "north"
    assert display.image_.norm.vmin == -display.image_.norm.vmax
    assert display.colorbar_.ax.get_ylabel() == "residual of depth"


def test_what_cannot_be_drawn_is_said(fitted):
    model, X, y = fitted
    with pytest.raises(ValueError, match=r"places has shape \(150, 2\) and values \(3,\)"):
        plots.MapDisplay.from_predictions(X, y[:3])
    with pytest.raises(ValueError, match="missing or infinite"):
        plots.MapDisplay.from_predictions(X, np.full(150, np.nan))
    three, z = small(60, 3)
    with pytest.raises(ValueError, match="coordinates="):
        plots.VariogramDisplay.from_estimator(model)
    with pytest.raises(ValueError, match="two columns"):
        plots.MapDisplay.from_estimator(quick().fit(three, z))
    with pytest.raises(ValueError, match="y is missing"):
        plots.PITDisplay.from_estimator(model, X)
    with pytest.raises(ValueError, match="classes"):
        plots.PITDisplay.from_estimator(quick_classifier().fit(X, y > 0))
    with pytest.raises(ValueError, match="bins is 1"):
        plots.PITDisplay.from_predictions(y, scipy.stats.norm(y, 1.0), bins=1)
    with pytest.raises(ValueError, match="levels is"):
        plots.CoverageDisplay.from_predictions(y, scipy.stats.norm(y, 1.0), levels=[90])
    with pytest.raises(ValueError, match="expected the same"):
        plots.PITDisplay.from_predictions(y, scipy.stats.norm(y[:10], 1.0))
    with pytest.raises(ValueError, match="target is 3"):
        plots.PITDisplay.from_estimator(model, X, y, target=3)


def test_without_matplotlib_a_message_says_what_to_install():
    code = """
        import sys
        class Hide:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "matplotlib":
                    raise ModuleNotFoundError("hidden: " + name, name=name)
        sys.meta_path.insert(0, Hide())
        import scipy.stats
        from nearfield.plots import PITDisplay
        try:
            PITDisplay.from_predictions([0.0, 1.0], scipy.stats.norm([0.0, 0.5], 1.0))
        except ImportError as error:
            print(error)
    """
    import textwrap

    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)
    assert "pip install 'nearfield[plots]'" in done.stdout, done.stderr
