"""Other processors: a few tests once more, compiled for other vector units, with another code path of BLAS.

A result that rests on the rounding of this machine fails here rather than on the next one. Every run compiles anew, so
the selection is short: the closed form against dense solves, a row of weight two, a classifier against dense algebra,
and old files to 1e-10.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SELECTION = (
    "test_conditional.py::test_moments_equal_dense_solves[9-4-matern52]",
    "test_conditional.py::test_slopes_equal_finite_differences[matern52]",
    "test_estimators.py::test_zero_weight_is_no_row_and_integer_weight_is_repetition",
    "test_classifier.py::test_the_latent_functions_are_those_of_dense_algebra[constant-shared-2-tied]",
    "test_old_files.py::test_predictions_are_those_of_the_version_that_wrote_the_file[v2-gaussian]",
    "test_old_files.py::test_predictions_are_those_of_the_version_that_wrote_the_file[v2-two_tied]",
)
# Without features named Numba adds those of this machine to whatever processor is named.
UNITS = {
    "generic": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "x86-64-v3": {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "", "OPENBLAS_CORETYPE": "Haswell"},
}


def can_run(unit):
    """Whether code for that processor runs on this one."""
    if unit == "generic":
        return True
    from llvmlite import binding

    here = binding.get_host_cpu_features()
    return platform.machine() in ("x86_64", "AMD64") and all(here.get(name) for name in ("avx2", "bmi2", "fma"))


def start(folder, unit):
    folder.mkdir()
    environment = {**os.environ, **UNITS[unit], "NUMBA_CACHE_DIR": str(folder / "compiled")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(folder / "tmp"), *SELECTION]
    return subprocess.Popen(
        command, cwd=TESTS, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All at once, for they hardly do anything but compile."""
    folder = tmp_path_factory.mktemp("units")
    started = {unit: start(folder / unit, unit) for unit in UNITS if can_run(unit)}
    yield started
    for process in started.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("unit", UNITS)
def test_other_vector_units(runs, unit):
    if unit not in runs:
        pytest.skip(f"this machine does not run code for {unit}")
    output, _ = runs[unit].communicate(timeout=900)
    assert runs[unit].returncode == 0, output
    assert f"{len(SELECTION)} passed" in output
