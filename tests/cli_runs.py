"""Running the command line inside the tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest

from nearfield import cli
from nearfield.cli import main
from nearfield.table import write_blocks


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line and gives its exit code and what it printed."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return run


def short_training() -> AbstractContextManager[Any]:
    """Fits of the command line take a few steps only: for what does not depend on how long a model was trained."""
    whole = cli._estimator
    return patch.object(cli, "_estimator", lambda name, **settings: whole(name, max_steps=8, **settings))


def write(path: Path, table: pa.Table) -> Path:
    with write_blocks(path) as append:
        append(table)
    return path


def failed(result: Result, *parts: str, code: int = 2) -> None:
    """One line on standard error that has all `parts`, nothing on standard output."""
    assert result.code == code, result
    assert result.out == ""
    assert result.err.startswith("nearfield: error: "), result.err
    assert len(result.err.splitlines()) == 1
    for part in parts:
        assert part in result.err
