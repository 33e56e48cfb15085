"""What a user would pick today: GPBoost (Vecchia), MuyGPyS, CatBoost, NGBoost and scikit-learn's boosting, each written
the way its own users would, with its number of trees or its kernel chosen on the validation rows.

Packages are imported when a method is built. GPBoost, MuyGPyS and scikit-learn do not call back while they work, so a
deadline is seen only before and after; the harness, which runs each fit in a process of its own, ends them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.methods.common import best_on_validation, blocks, configured
from experiments.methods.protocol import Array, Labels, Prediction, Settings, check_deadline, package

Predict = Callable[[Array], Prediction]

MOST_TO_CHOOSE = 100_000
"""Of longer tables, this many rows decide between the candidates; the best of them is then fitted to all."""


def spread(probabilities: Array, seen: Labels, classes: int, n: int) -> Array:
    """Probabilities (m, K) of all classes from those of the classes `seen` among n training rows.

    A class that was never seen gets the probability of one row more of it, 1 / (n + number of such classes).
    """
    full = np.full((len(probabilities), classes), 1.0 / n)
    full[:, seen] = probabilities
    return full / full.sum(1, keepdims=True)


class Packaged:
    """A method of one file's worth: `candidates` are tuning parameters, `_fit` gives predict for one of them."""

    name = ""

    def __init__(self, settings: Settings, candidates: tuple[Any, ...]) -> None:
        self.settings, self.candidates = settings, candidates
        self.chosen: dict[str, Any] = {}

    def fit(
        self, X: Array, y: NDArray, X_val: Array, y_val: NDArray, *, seed: int = 0, deadline: float | None = None
    ) -> None:
        known = np.isin(y_val, y) if self.settings.task != "regression" else np.ones(len(y_val), dtype=bool)

        def fit_to(rows: Array | slice) -> Callable[[Any], Predict]:
            return lambda one: self._fit(one, X[rows], y[rows], X_val[known], y_val[known], seed, deadline)

        candidates, everything = self.candidates, slice(None)
        if len(X) > MOST_TO_CHOOSE and len(candidates) > 1:
            some = np.random.default_rng(seed).permutation(len(X))[:MOST_TO_CHOOSE]
            candidates = best_on_validation(candidates, fit_to(some), X_val, y_val, deadline)[:1]
            self.chosen["rows_to_choose"] = len(some)
        best, self._predict = best_on_validation(candidates, fit_to(everything), X_val, y_val, deadline)
        self.chosen[self.name] = best
        check_deadline(deadline)

    def predict(self, X: Array, *, deadline: float | None = None) -> Prediction:
        check_deadline(deadline)
        return self._predict(X)

    def _fit(
        self, candidate: Any, X: Array, y: NDArray, X_val: Array, y_val: NDArray, seed: int, deadline: float | None
    ) -> Predict:
        raise NotImplementedError


@dataclass(frozen=True)
class GPBoostConfig:
    neighbours: tuple[int, ...] = (30,)


def build_gpboost(settings: Settings) -> GPBoost:
    return GPBoost(settings, configured(GPBoostConfig(), GPBoostConfig((10,)), settings).neighbours)


class GPBoost(Packaged):
    """GPModel: Vecchia's approximation in random order, Matern-5/2 ARD, an intercept; classes by Laplace's method."""

    name = "neighbours"

    def __init__(self, settings: Settings, candidates: tuple[int, ...]) -> None:
        self._package = package("gpboost")
        super().__init__(settings, candidates)

    def _fit(
        self, candidate: Any, X: Array, y: NDArray, X_val: Array, y_val: NDArray, seed: int, deadline: float | None
    ) -> Predict:
        regression = self.settings.task == "regression"
        varies = np.ptp(X, axis=0) > 0
        X = X[:, varies]
        model = self._package.GPModel(
            gp_coords=X,
            cov_function="matern_ard",
            cov_fct_shape=2.5,
            likelihood="gaussian" if regression else "bernoulli_logit",
            gp_approx="vecchia",
            num_neighbors=candidate,
            num_parallel_threads=self.settings.thread_count(),
            seed=seed,
        )
        data = {"y": np.asarray(y, dtype=float), "X": np.ones((len(X), 1))}
        try:
            model.fit(**data)
        except self._package.basic.GPBoostError as error:
            if "initial value for the range" not in str(error):
                raise
            # It looks for first length scales on some rows alone, where a column that is mostly zero may be constant.
            start = np.r_[[0.1] * regression, 1.0, np.sqrt(X.shape[1]) * X.std(axis=0)]
            model.fit(**data, params={"init_cov_pars": start})

        def predict(x: Array) -> Prediction:
            one = np.ones((len(x), 1))
            coords = x[:, varies]
            found = model.predict(gp_coords_pred=coords, X_pred=one, predict_var=regression, predict_response=True)
            mean = np.asarray(found["mu"], dtype=float)
            if regression:
                return Prediction.normal(mean, np.sqrt(found["var"]))
            return Prediction.classes(np.c_[1 - mean, mean])

        return predict


@dataclass(frozen=True)
class MuyGPSConfig:
    kernels: tuple[str, ...] = ("isotropic", "anisotropic")
    neighbours: int = 50
    batch: int = 500
    iterations: int = 20


def build_muygps(settings: Settings) -> MuyGPS:
    return MuyGPS(settings, configured(MuyGPSConfig(), MuyGPSConfig(("isotropic",)), settings))


class MuyGPS(Packaged):
    """MuyGPyS as in its regression tutorial, Matern-5/2, neighbours of the unscaled inputs.

    Length scales and noise are learned from the leave-one-out likelihood of `batch` rows by L-BFGS with finite
    differences, d + 2 evaluations for each gradient if anisotropic.
    """

    name = "kernel"

    def __init__(self, settings: Settings, config: MuyGPSConfig) -> None:
        package("MuyGPyS")
        super().__init__(settings, config.kernels)
        self.config = config

    def _fit(
        self, candidate: Any, X: Array, y: NDArray, X_val: Array, y_val: NDArray, seed: int, deadline: float | None
    ) -> Predict:
        from MuyGPyS.neighbors import NN_Wrapper
        from MuyGPyS.optimize import L_BFGS_B_optimize
        from MuyGPyS.optimize.batch import sample_batch
        from MuyGPyS.optimize.loss import lool_fn

        np.random.seed(seed)  # noqa: NPY002 - MuyGPyS draws its batch from the global generator
        lookup = NN_Wrapper(X, self.config.neighbours, nn_method="exact", algorithm="auto")
        rows, near = sample_batch(lookup, min(self.config.batch, len(X)), len(X))
        model = self._model(X.shape[1], candidate)
        crosswise, pairwise, targets, near_targets = model.make_train_tensors(rows, near, X, y)
        options = {"maxiter": self.config.iterations}
        model = L_BFGS_B_optimize(
            model, targets, near_targets, crosswise, pairwise, loss_fn=lool_fn, verbose=False, options=options
        )
        model = model.optimize_scale(pairwise, near_targets)

        def predict(x: Array) -> Prediction:
            parts = []
            for block in blocks(len(x), 500):  # differences of a block take block x k x k x d numbers
                check_deadline(deadline)
                near, _ = lookup.get_nns(x[block])
                everything = np.arange(len(near))
                crosswise, pairwise, near_targets = model.make_predict_tensors(everything, near, x[block], X, y)
                Kin, Kcross = model.kernel(pairwise), model.kernel(crosswise)
                mean = np.ravel(model.posterior_mean(Kin, Kcross, near_targets))
                # The posterior variance is that of the noise-free value.
                variance = np.ravel(model.posterior_variance(Kin, Kcross) + model.scale() * model.noise())
                parts.append(np.c_[mean, variance])
            mean, variance = np.concatenate(parts).T
            return Prediction.normal(mean, np.sqrt(variance))

        return predict

    @staticmethod
    def _model(d: int, kernel: str) -> Any:
        from MuyGPyS.gp import MuyGPS as Model
        from MuyGPyS.gp.deformation import Anisotropy, Isotropy, l2
        from MuyGPyS.gp.hyperparameter import AnalyticScale, Parameter, VectorParameter
        from MuyGPyS.gp.kernels import Matern
        from MuyGPyS.gp.noise import HomoscedasticNoise

        start, bounds = float(np.sqrt(d)), (1e-1, 1e2)
        if kernel == "isotropic":
            deformation = Isotropy(l2, Parameter(start, bounds))
        else:
            deformation = Anisotropy(l2, VectorParameter(*(Parameter(start, bounds) for _ in range(d))))
        matern = Matern(smoothness=Parameter(2.5), deformation=deformation)
        return Model(kernel=matern, noise=HomoscedasticNoise(1e-2, (1e-6, 1.0)), scale=AnalyticScale())


@dataclass(frozen=True)
class TreesConfig:
    candidates: tuple[int, ...]
    trees: int
    learning_rate: float | None = None
    patience: int = 50


def build_catboost(settings: Settings) -> CatBoost:
    return CatBoost(settings, configured(TreesConfig((4, 6, 8), 1000), TreesConfig((6,), 400), settings))


class CatBoost(Packaged):
    """Numbers: RMSEWithUncertainty, a normal predictive; classes: its classifier. Candidates are depths."""

    name = "depth"

    def __init__(self, settings: Settings, config: TreesConfig) -> None:
        self._package = package("catboost")
        super().__init__(settings, config.candidates)
        self.config = config

    def _fit(
        self, candidate: Any, X: Array, y: NDArray, X_val: Array, y_val: NDArray, seed: int, deadline: float | None
    ) -> Predict:
        class Watch:
            def after_iteration(self, info: Any) -> bool:
                return deadline is None or time.monotonic() < deadline

        arguments = {
            "iterations": self.config.trees,
            "learning_rate": self.config.learning_rate,
            "depth": candidate,
            "random_seed": seed,
            "thread_count": self.settings.thread_count(),
            "early_stopping_rounds": self.config.patience if len(y_val) else None,
            "allow_writing_files": False,
            "verbose": False,
        }
        pool = (X_val, y_val) if len(y_val) else None
        if self.settings.task == "regression":
            model = self._package.CatBoostRegressor(loss_function="RMSEWithUncertainty", **arguments)
        else:
            loss = "Logloss" if self.settings.task == "binary" else "MultiClass"
            model = self._package.CatBoostClassifier(loss_function=loss, **arguments)
        model.fit(X, y, eval_set=pool, callbacks=[Watch()])
        check_deadline(deadline)

        def predict(x: Array) -> Prediction:
            if self.settings.task == "regression":
                mean, variance = model.predict(x, prediction_type="RMSEWithUncertainty").T
                return Prediction.normal(mean, np.sqrt(variance))
            seen = np.asarray(model.classes_, dtype=np.int64)
            return Prediction.classes(spread(model.predict_proba(x), seen, self.settings.classes, len(X)))

        return predict


def build_ngboost(settings: Settings) -> NGBoost:
    full, quick = TreesConfig((3, 5), 1000, 0.05), TreesConfig((3,), 300, 0.1)
    return NGBoost(settings, configured(full, quick, settings))


class NGBoost(Packaged):
    """NGBoost with a normal predictive. Candidates are depths of its trees."""

    name = "depth"

    def __init__(self, settings: Settings, config: TreesConfig) -> None:
        package("ngboost")
        super().__init__(settings, config.candidates)
        self.config = config

    def _fit(
        self, candidate: Any, X: Array, y: NDArray, X_val: Array, y_val: NDArray, seed: int, deadline: float | None
    ) -> Predict:
        from ngboost import NGBRegressor
        from ngboost.distns import Normal
        from sklearn.tree import DecisionTreeRegressor

        def watched(dist: Any, target: Array, *_: Any) -> float:
            check_deadline(deadline)
            return dist.total_score(target)

        model = NGBRegressor(
            Dist=Normal,
            Base=DecisionTreeRegressor(max_depth=candidate),
            n_estimators=self.config.trees,
            learning_rate=self.config.learning_rate,
            random_state=seed,
            verbose=False,
        )
        rest = {"X_val": X_val, "Y_val": y_val, "early_stopping_rounds": self.config.patience} if len(y_val) else {}
        model.fit(X, y, train_loss_monitor=watched, **rest)

        trees = None if model.best_val_loss_itr is None else model.best_val_loss_itr + 1  # it counts from zero

        def predict(x: Array) -> Prediction:
            found = model.pred_dist(x, max_iter=trees).params
            return Prediction.normal(found["loc"], found["scale"])

        return predict


def build_hist_boosting(settings: Settings) -> HistBoosting:
    full, quick = TreesConfig((7, 31, 63), 1000, 0.05), TreesConfig((31,), 200, 0.1)
    return HistBoosting(settings, configured(full, quick, settings))


class HistBoosting(Packaged):
    """scikit-learn's HistGradientBoostingClassifier. Candidates are numbers of leaves.

    Without a penalty on the values of its leaves it diverges on rare classes (Shuttle).
    """

    name = "leaves"

    def __init__(self, settings: Settings, config: TreesConfig) -> None:
        super().__init__(settings, config.candidates)
        self.config = config

    def _fit(
        self, candidate: Any, X: Array, y: NDArray, X_val: Array, y_val: NDArray, seed: int, deadline: float | None
    ) -> Predict:
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(
            learning_rate=self.config.learning_rate,
            max_leaf_nodes=candidate,
            l2_regularization=1.0,
            max_iter=self.config.trees,
            early_stopping=len(y_val) > 0,
            n_iter_no_change=self.config.patience,
            random_state=seed,
        )
        model.fit(X, y, **({"X_val": X_val, "y_val": y_val} if len(y_val) else {}))
        check_deadline(deadline)
        # It stops `patience` trees after the best; the first score is that of no tree.
        trees = max(1, int(np.argmax(model.validation_score_))) if len(y_val) else model.n_iter_
        seen = np.asarray(model.classes_, dtype=np.int64)

        def predict(x: Array) -> Prediction:
            best = next(itertools.islice(model.staged_predict_proba(x), trees - 1, None))
            return Prediction.classes(spread(best, seen, self.settings.classes, len(X)))

        return predict
