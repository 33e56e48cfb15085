"""The direction of imports: each module may import only from those above it in docs/architecture.md."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import nearfield

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "nearfield"


def layers() -> list[str]:
    """Module names in the order of the layout in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = re.search(r"```layout\n(.*?)```", text, re.S)
    assert block is not None
    return [line.split()[0].rstrip("/").removesuffix(".py") for line in block.group(1).splitlines() if line.strip()]


def top_level(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Parts of the package that a file imports when it is loaded or run."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "nearfield":
            names = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            found.update(names)
        elif isinstance(node, ast.Import):
            found.update(a.name.split(".")[1] for a in node.names if a.name.startswith("nearfield."))
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_upwards(path):
    if path == PACKAGE / "__init__.py":
        return  # the front door opens every room
    order = layers()
    own = top_level(path)
    assert own in order, f"{own} is missing from the layout in docs/architecture.md"
    for name in imported(path) - {own, "__version__", *nearfield.__all__}:
        assert order.index(name) < order.index(own), f"{own} may not import {name}"


def test_every_module_of_the_layout_exists():
    there = {top_level(path) for path in PACKAGE.rglob("*.py")} - {"__init__"}
    assert set(layers()) == there


def test_the_page_names_files_and_names_that_exist():
    """Every `file.py` in backticks is there, and every `module.name` in the table of places is defined in it."""
    text = (ROOT / "docs" / "architecture.md").read_text().split("## The layout")[0]
    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), f"{name} in docs/architecture.md does not exist"
    for module, name in re.findall(r"`([a-z_]+)\.(\w+)`", text):
        if name != "py":
            path = PACKAGE / f"{module}.py"
            assert path.exists(), f"{module}.{name} in docs/architecture.md: there is no {module}.py"
            assert re.search(rf"(def|class) {name}\b|^{name} ?[:=]", path.read_text(), re.M), f"{module}.{name} is gone"


RUN_TIME = {"numpy", "scipy", "sklearn", "numba", "llvmlite", "threadpoolctl", "tqdm"}
COMMAND_LINE = {"typer", "pyarrow"}
TABULAR = {
    "cli_large",
    "streaming",
    "workbook",
    "table_writing",
    "table",
    "cells",
    "spellings",
    "forms",
    "arrow_columns",
    "target_cells",
}
TABULAR |= {
    "target",
    "reading",
    "cli",
    "cli_page",
    "cli_explore",
    "cli_report",
    "cli_table_report",
    "cli_saved",
    "cli_arguments",
    "cli_fit_options",
    "cli_noise",
    "cli_options",
    "entry",
}
CLUSTER = {"dask", "distributed"}
FRAMES = {"pandas", "polars"}  # imported where a frame of theirs came


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_little_else_is_needed(path):
    """What is not in Python comes from the dependencies of pyproject.toml; typer and pyarrow for the command line."""
    tree = ast.parse(path.read_text())
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
    named += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    others = {name.split(".")[0] for name in named} - set(sys.stdlib_module_names) - {"nearfield", "_typeshed"}
    allowed = RUN_TIME | (COMMAND_LINE if top_level(path) in TABULAR else set())
    allowed |= FRAMES if top_level(path) == "column_values" else set()
    allowed |= {"matplotlib"} if top_level(path) == "plots" else set()
    allowed |= {"jinja2"} if top_level(path) == "report" else set()
    allowed |= CLUSTER if top_level(path) in ("dask", "cluster_demo") else set()  # the extra for Dask
    allowed |= {"openpyxl"} if top_level(path) == "workbook" else set()  # the extra for Excel
    assert others <= allowed, f"{others - allowed} is not installed with the package"
