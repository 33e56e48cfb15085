"""Arguments of the command line, checked before anything is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """The input or an argument is wrong; the message says which and what to do."""


@contextmanager
def user_errors() -> Iterator[None]:
    """What the estimator rejects is a mistake in the input; elsewhere a ValueError would be one of ours."""
    try:
        yield
    except (ValueError, FloatingPointError) as error:
        raise UserError(str(error)) from error


def parse_k(text: str | None) -> int | str | None:
    """The word auto or a number of neighbours, None if it was not given."""
    if text is None or text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--k is {text!r}; auto or a whole number of at least 1 is expected.")
    return int(text)


def bent_columns(warp: bool | None, straight: list[str] | None) -> bool | dict[str, bool] | None:
    """Which columns may be bent: all but some, else the flag as it was given."""
    if not straight:
        return warp
    if warp is False:
        raise UserError("--no-warp keeps every column as it is: leave out --straight, or --no-warp.")
    return dict.fromkeys(straight, False)


def parse_coordinates(text: str | None) -> str | list[str] | dict[str, list[str]] | None:
    """What the estimators take, from lonlat, lonlat:LON,LAT or X,Y or X,Y,Z; None if it was not given."""
    if text is None or text == "lonlat":
        return text
    kind, _, named = text.partition(":") if text.startswith("lonlat:") else ("", "", text)
    columns = [name.strip() for name in named.split(",")]
    if len(columns) < 2 or "" in columns:
        raise UserError(
            f"--coordinates is {text!r}; lonlat, lonlat:LON,LAT, X,Y or X,Y,Z with names of columns is expected."
        )
    return {kind: columns} if kind else columns


def parse_buffer(text: str | None) -> float | dict[str, float] | None:
    """A distance, or distances by column from COLUMN:NUMBER,COLUMN:NUMBER; None if it was not given."""
    if text is None:
        return None
    try:
        if ":" not in text:
            return float(text)
        pairs = [part.rpartition(":") for part in text.split(",")]
        return {name.strip(): float(distance) for name, _, distance in pairs}
    except ValueError:
        raise UserError(
            f"--buffer is {text!r}; a distance, or distances in columns such as x:10,y:10, is expected."
        ) from None


def check_leave_out(leave_out: str | None, time: str | None, targets: list[str]) -> None:
    """Raise UserError unless --leave-out past and --time come together, the time being no target."""
    if leave_out not in (None, "one", "past"):
        raise UserError(f"--leave-out is {leave_out!r}; one or past is expected.")
    if leave_out == "past" and time is None:
        raise UserError("--leave-out past needs --time: the column with the time of each row.")
    if leave_out != "past" and time is not None:
        raise UserError("--time goes with --leave-out past: add it, or leave --time out.")
    if time in targets:
        raise UserError(f"--time is {time!r}, which is a target; a column of times is expected.")


def check_targets(
    targets: list[str], outputs: str | None, task: str, likelihood: str | None, given: Mapping[str, str]
) -> None:
    """Raise UserError if a target is named twice, or an option does not go with so many targets."""
    from nearfield.families import tasks, usual
    from nearfield.families.outputs import OUTPUTS

    default = usual("number")
    twice = [name for place, name in enumerate(targets) if name in targets[:place]]
    if twice:
        raise UserError(f"--target {twice[0]!r} is given more than once; name each target once.")
    if outputs not in (None, *OUTPUTS):
        raise UserError(f"--outputs is {outputs!r}; one of {', '.join(OUTPUTS)} is expected.")
    if len(targets) == 1:
        if outputs is not None:
            raise UserError("--outputs is for several targets, but one is given: leave it out, or repeat --target.")
        return
    asked = {
        f"--task {task}": task in tasks() and task != default.task,
        f"--likelihood {likelihood}": likelihood in likelihoods() and likelihood != default.name,
        **{f"--{what}": True for what in given},
    }
    for option, alone in asked.items():
        if alone:
            raise UserError(
                f"{option} goes with one target, but {len(targets)} are given: only a {default.name} {default.task} "
                "takes several. Leave it out, or fit a model to each target."
            )


def likelihoods() -> list[str]:
    """The likelihoods that can be asked for by name."""
    from nearfield.families import tasks

    return [family.name for families in tasks().values() for family in families]


def parse_task(task: str, likelihood: str | None, given: Mapping[str, str]) -> tuple[str, str | None]:
    """The task, with "auto" decided where the other options imply one, and the likelihood, None where the number of
    classes decides. Of several families that the options allow, it is the first.
    """
    from nearfield.families import tasks

    every = tasks()
    if task not in ("auto", *every):
        raise UserError(f"--task is {task!r}; one of auto, {', '.join(every)} is expected.")
    if likelihood not in (None, *likelihoods()):
        raise UserError(f"--likelihood is {likelihood!r}; one of {', '.join(likelihoods())} is expected.")
    if task == "auto" and likelihood is None and not given:
        return task, None
    known = [family for families in every.values() for family in families]
    options = {f"--{what}": [family for family in known if what in family.given] for what in given}
    if likelihood is not None:
        options[f"--likelihood {likelihood}"] = [family for family in known if family.name == likelihood]
    left, so_far = (known, "") if task == "auto" else (every[task], task)
    for option, own in options.items():
        fits = [family for family in left if family in own]
        if not fits:
            allowed = " or ".join(dict.fromkeys(family.task for family in own))
            raise UserError(f"{option} goes with --task {allowed}, not with {so_far}.")
        left, so_far = fits, " or ".join(dict.fromkeys(family.task for family in fits))
    family = left[0]
    for what, beside in family.given.items():
        if beside.needed and what not in given:
            raise UserError(f"--task {family.task} needs --{what}: the column with {beside.meaning}.")
    return family.task, likelihood if family.kind == "label" else family.name


def parse_quantiles(text: str | None) -> list[float]:
    """Probabilities, none if they were not given."""
    try:
        levels = [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--quantiles is {text!r}; numbers with commas, such as 0.05,0.5,0.95, are expected.") from None
    for level in levels:
        check_between(level, "--quantiles")
    return levels


def parse_rows(text: str | None, path: Path | None) -> list[int]:
    """Numbers of rows, from 1, as in 3,17, or those of a file, one in each line, whose first line may be a heading."""
    if (text is None) == (path is None):
        raise UserError("Name the rows to forget: either --rows 3,17 or a file with a number in each line.")
    if path is None:
        assert text is not None
        source, cells = "--rows", [cell.strip() for cell in text.split(",")]
    else:
        source, cells = str(path), [line.strip().strip('"') for line in path.read_text("utf-8-sig").splitlines()]
        cells = [cell for place, cell in enumerate(cells) if cell and (place or cell.isdecimal())]
    wrong = [cell for cell in cells if not cell.isdecimal() or int(cell) < 1]
    if wrong or not cells:
        found = f"has {wrong[0]!r}" if wrong else "names no rows"
        raise UserError(f"{source} {found}; numbers of rows of the training table, from 1, are expected.")
    return [int(cell) for cell in cells]


def check_between(value: float | None, option: str) -> None:
    """Raise UserError unless `value` is a probability between 0 and 1, or was not given."""
    if value is not None and not 0.0 < value < 1.0:
        raise UserError(f"{option} is {value:g}; a probability between 0 and 1 is expected.")


def check_meaning(dates: str | None, odd_cells: str) -> None:
    """Raise UserError unless the options that say what cells mean are among those there are."""
    from nearfield.forms import DATE_ORDERS, ODD

    if dates not in (None, *DATE_ORDERS):
        raise UserError(f"--dates is {dates!r}; {' or '.join(DATE_ORDERS)} is expected.")
    if odd_cells not in ODD:
        raise UserError(f"--odd-cells is {odd_cells!r}; one of {', '.join(ODD)} is expected.")


def check_apart(out: Path, *inputs: os.PathLike[str]) -> None:
    """Raise UserError if `out` is one of the inputs."""
    for path in inputs:
        if out.exists() and os.path.exists(path) and os.path.samefile(out, path):
            raise UserError(f"{out} is also an input, which would be overwritten; choose another name.")
