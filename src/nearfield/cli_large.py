"""`nearfield fit` of Parquet files that are larger than memory."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearfield.cli_arguments import UserError, parse_task, user_errors
from nearfield.cli_cluster import fit_where_files_are


def is_large(table: Path, cache: Path | None) -> bool:
    """Whether the table is read out of core: a folder, or what was asked for by naming a cache."""
    return cache is not None or (isinstance(table, Path) and table.is_dir())


def fit_files(
    table: Path,
    target: list[str],
    out: Path,
    task: str,
    likelihood: str | None,
    settings: Mapping[str, Any],
    others: Mapping[str, Any],
    quiet: bool,
    dask: str | None = None,
) -> None:
    """Fit the file or folder and write the model. others: options that only tables in memory have, by name.

    dask: the scheduler of a cluster whose workers read the files.
    """
    from nearfield import TrainingRowsWarning
    from nearfield.cli_table_report import column_lines, ending
    from nearfield.estimators import ESTIMATORS
    from nearfield.families import FAMILIES, tasks

    for name, value in others.items():
        if value not in (None, [], ()):
            raise UserError(
                f"{name} is for tables that are read into memory: leave it out, or give {table} as one file without "
                "--cache."
            )
    if len(target) > 1:
        raise UserError(f"--target is given {len(target)} times: of a table in files there is one target.")
    asked, family = parse_task(task, likelihood, {})
    if asked == "auto":
        asked, family = _task_of(table, target[0]), None
    own = FAMILIES[family] if family is not None else tasks()[asked][0]
    chosen = {name: value for name, value in settings.items() if value is not None}
    if own.kind != "label":
        chosen["likelihood"] = own.name
    if dask is not None and "cache" in chosen:
        raise UserError("--cache is for fits of this machine: leave it out, with --dask the rows are held by workers.")
    with user_errors():
        if dask is None:
            model = ESTIMATORS[own.estimator](**chosen)
            model.fit(table, target[0])
        else:
            model = fit_where_files_are(dask, own.estimator, chosen, table, target[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingRowsWarning)  # said below
        model.save(out)
    if quiet:
        return
    if task == "auto" and likelihood is None:
        print(f"nearfield: note: {target[0]!r} is taken as a number to predict.", file=sys.stderr)
    encoder = model.encoder_
    print(f"{model.n_rows_:,} rows, {len(encoder.needed)} columns as {len(encoder.feature_names)} features")
    print("\n".join(f"  {line}" for line in column_lines(encoder)))
    print(model.summary_)
    print(ending(out, table))


def _task_of(table: Path, target: str) -> str:
    """regression, for a target that is no whole number; of others nobody can tell before all are read."""
    import pyarrow as pa

    from nearfield.streaming import target_type

    own = target_type(table, target)
    if not pa.types.is_floating(own):
        raise UserError(
            f"The target {target!r} is {own}, whole numbers: say what they are by --task regression, classification "
            "or counts."
        )
    return "regression"
