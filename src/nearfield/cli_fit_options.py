"""Options of `nearfield fit`, with what its help and the page about the command line say of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Target = Annotated[
    list[str],
    typer.Option("--target", help="The column to predict. Repeated: columns to predict together.", metavar="COLUMN"),
]
Out = Annotated[Path, typer.Option("--out", help="Where to write the model, under any name.", metavar="FILE")]
Task = Annotated[
    str,
    typer.Option(
        "--task", help="What the target is; auto takes text and true/false as classes, all else as numbers.",
        metavar="NAME",
    ),
]  # fmt: skip
Likelihood = Annotated[
    str | None,
    typer.Option(
        "--likelihood",
        help="Likelihood of the target: gaussian for a regression, or student_t if it has outliers; bernoulli for two "
        "classes, or one_against_all.",
        metavar="NAME",
    ),
]
Exposure = Annotated[
    str | None,
    typer.Option(
        "--exposure", help="Counts: the column that expected counts are proportional to (time, area, people).",
        metavar="COLUMN",
    ),
]  # fmt: skip
Trials = Annotated[
    str | None,
    typer.Option(
        "--trials", help="Binomial counts: the column with the trials that the target is so many successes out of.",
        metavar="COLUMN",
    ),
]  # fmt: skip
Outputs = Annotated[
    str | None,
    typer.Option("--outputs", help="How several targets depend on each other; lmc if not given.", metavar="NAME"),
]
Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        help="Rows to leave out together: those with the same label in a column, which is then no feature; or near "
        "copies, which auto finds, and with which exact copies count once.",
        metavar="auto|COLUMN",
    ),
]
LeaveOut = Annotated[
    str | None,
    typer.Option(
        "--leave-out",
        help="What left-out rows are predicted from: one, the default, is all others; past is earlier ones alone, so "
        "that scores, k and error bars are those of forecasts.",
        metavar="one|past",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        help="Dates or numbers that say which rows are earlier, for --leave-out past; rows of the same time do not see "
        "each other. The column stays a feature, unless --drop names it.",
        metavar="COLUMN",
    ),
]
BufferDistance = Annotated[
    str | None,
    typer.Option(
        "--buffer",
        help="Left-out rows do not see others within that distance: in the units of --coordinates (of lonlat degrees), "
        "else of all columns that are numbers, or in the columns that are named.",
        metavar="NUMBER|COLUMN:NUMBER,..",
    ),
]
Drop = Annotated[
    list[str] | None, typer.Option("--drop", help="A column not to use; may be repeated.", metavar="COLUMN")
]
Kernel = Annotated[
    str | None,
    typer.Option(
        "--kernel",
        help="The kernel: auto, the default, whose smoothness is learned, matern52, matern32, matern12, rbf or "
        "rational_quadratic.",
        metavar="NAME",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="How distances are measured: learned, the default, or plain: Matern 5/2, nothing bent, and length scales "
        "without a prior.",
        metavar="NAME",
    ),
]
Warp = Annotated[
    bool | None,
    typer.Option(
        "--warp/--no-warp",
        help="Whether features may be bent towards the scores of their ranks, as left-out rows prefer; they may if not "
        "given.",
    ),
]
Straight = Annotated[
    list[str] | None, typer.Option("--straight", help="A feature not to bend; may be repeated.", metavar="FEATURE")
]
Mean = Annotated[
    str | None,
    typer.Option(
        "--mean",
        help="The mean. A linear one has a learned slope for each feature, so that trends go on beyond the training "
        "rows; constant if not given.",
        metavar="NAME",
    ),
]
Drift = Annotated[
    list[str] | None,
    typer.Option(
        "--drift",
        help="A column on which the mean depends, with a learned slope: --mean linear on this one alone; may be "
        "repeated.",
        metavar="COLUMN",
    ),
]
Coordinates = Annotated[
    str | None,
    typer.Option(
        "--coordinates",
        help="Columns that are places. lonlat: degrees of longitude and latitude, found by their names, or with other "
        "names; X,Y or X,Y,Z: planar ones, whose axes may be turned.",
        metavar="lonlat|lonlat:LON,LAT|X,Y|X,Y,Z",
    ),
]
Neighbours = Annotated[
    str | None,
    typer.Option(
        "--k",
        help="Number of neighbours to predict from; auto, the default, chooses it on left-out rows.",
        metavar="auto|INT",
    ),
]
Continuous = Annotated[
    bool | None,
    typer.Option(
        "--continuous/--no-continuous",
        help="Whether predictions may not jump where neighbours change; as left-out rows prefer if not given.",
    ),
]
Search = Annotated[
    str | None,
    typer.Option(
        "--search",
        help="How predictions find neighbours: exact, the default, or approximate: 95 % of the nearest, with less work "
        "in many columns; the summary tells what that costs.",
        metavar="NAME",
    ),
]
Predictive = Annotated[
    str | None,
    typer.Option(
        "--predictive",
        help="Predictive distributions: calibrated, the default, or plain, as the trained model says.",
        metavar="NAME",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed; the same seed gives the same model.", min=0, metavar="INT")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        help="File to which training is saved after each search for neighbours, and from which it goes on after a "
        "crash; removed at the end.",
        metavar="FILE",
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        help="For a Parquet file larger than memory, or a folder of them: it is read in blocks into files of this "
        "folder, which stay, and an interrupted fit goes on from there. Without it a folder of files is held in "
        "temporary ones.",
        metavar="FOLDER",
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        help="Scheduler of a Dask cluster whose workers search the rows, and read the files of a folder; the model is "
        "the same. Needs the extra dask.",
        metavar="tcp://HOST:PORT",
    ),
]
