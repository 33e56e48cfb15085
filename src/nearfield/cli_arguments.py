"""Arguments of the command line, checked before anything is read."""

from __future__ import annotations

from pathlib import Path

OUTPUTS = ("lmc", "independent", "shared")
"""How several targets may depend on each other, as in GPRegressor."""


class UserError(Exception):
    """The input or an argument is wrong; the message says which and what to do."""


def parse_k(text: str | None) -> int | str | None:
    """The word auto or a number of neighbours, None if it was not given."""
    if text is None or text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--k is {text!r}; auto or a whole number of at least 1 is expected.")
    return int(text)


def check_targets(
    targets: list[str],
    outputs: str | None,
    task: str,
    likelihood: str | None,
    exposure: str | None,
    trials: str | None,
) -> None:
    """Raise UserError if a target is named twice, or an option does not go with so many targets."""
    from nearfield.families import tasks

    default = tasks()["regression"][0]
    twice = [name for place, name in enumerate(targets) if name in targets[:place]]
    if twice:
        raise UserError(f"--target {twice[0]!r} is given more than once; name each target once.")
    if outputs not in (None, *OUTPUTS):
        raise UserError(f"--outputs is {outputs!r}; one of {', '.join(OUTPUTS)} is expected.")
    if len(targets) == 1:
        if outputs is not None:
            raise UserError("--outputs is for several targets, but one is given: leave it out, or repeat --target.")
        return
    for option, given in {
        f"--task {task}": task in tasks() and task != default.task,
        f"--likelihood {likelihood}": likelihood in _likelihoods() and likelihood != default.name,
        "--exposure": exposure is not None,
        "--trials": trials is not None,
    }.items():
        if given:
            raise UserError(
                f"{option} goes with one target, but {len(targets)} are given: only a gaussian regression takes "
                "several. Leave it out, or fit a model to each target."
            )


def _likelihoods() -> dict[str, str]:
    """The likelihoods that can be asked for by name, and the task of each."""
    from nearfield.families import tasks

    every = (family for families in tasks().values() for family in families)
    return {family.name: family.task for family in every}


def parse_task(task: str, likelihood: str | None, exposure: str | None, trials: str | None) -> str:
    """The task, with "auto" decided where the other options imply one."""
    from nearfield.families import tasks

    every = tasks()
    if task not in ("auto", *every):
        raise UserError(f"--task is {task!r}; one of auto, {', '.join(every)} is expected.")
    asked = {"exposure": exposure, "trials": trials}
    implied = {
        f"--{name}": own for name, column in asked.items() if column is not None
        for own, families in every.items() if name in families[0].given
    }  # fmt: skip
    if likelihood is not None:
        known = _likelihoods()
        if likelihood not in known:
            raise UserError(f"--likelihood is {likelihood!r}; one of {', '.join(known)} is expected.")
        implied[f"--likelihood {likelihood}"] = known[likelihood]
    for option, own in implied.items():
        if task not in ("auto", own):
            raise UserError(f"{option} goes with --task {own}, not with {task}.")
        task = own
    if task == "binomial" and trials is None:
        raise UserError("--task binomial needs --trials: the column with the number of trials of each row.")
    return task


def parse_quantiles(text: str | None) -> list[float]:
    """Probabilities, none if they were not given."""
    try:
        levels = [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--quantiles is {text!r}; numbers with commas, such as 0.05,0.5,0.95, are expected.") from None
    for level in levels:
        check_between(level, "--quantiles")
    return levels


def check_between(value: float | None, option: str) -> None:
    """Raise UserError unless `value` is a probability between 0 and 1, or was not given."""
    if value is not None and not 0.0 < value < 1.0:
        raise UserError(f"{option} is {value:g}; a probability between 0 and 1 is expected.")


def check_apart(out: Path, *inputs: Path) -> None:
    """Raise UserError if `out` is one of the inputs."""
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            raise UserError(f"{out} is also an input, which would be overwritten; choose another name.")
