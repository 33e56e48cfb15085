"""The report: means, standard errors, ranks, the paper's figures, and the two files."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import experiment_tasks as fakes
import numpy as np
import pytest

from experiments import figures, paper_tables, report, report_tables, store
from experiments.catalogue import EXPERIMENTS
from experiments.content import Cell
from experiments.ours import ALL_METHODS
from experiments.summaries import Summary, mean_ranks, summarise, winners
from experiments.task import Entry

PAPER = Path(report.__file__).parent / "paper"
RANKED = ("univariate", "multivariate", "binary", "multiclass")


def result(entry, data, split, status="done", experiment="univariate", **metrics):
    task = fakes.task(entry, data, split, experiment)
    more = {"rows": {"train": 1500, "columns": 3}, "metrics": metrics} if status == "done" else {"message": "oh"}
    return {**store.described(task), "status": status, "elapsed": 1.0, **more}


# --- summaries ------------------------------------------------------------------------------------------------------


def test_standard_error_of_three_splits():
    cell = Summary((1.0, 2.0, 4.0))
    assert cell.mean == pytest.approx(7 / 3)
    assert cell.standard_error == pytest.approx(np.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2 / 3))
    assert Summary((1.0,)).standard_error is None
    assert Summary((), ("failed",)).mean is None


def test_summaries_say_what_is_missing():
    results = [
        result("svgp", "bike", 0, nll=1.0),
        result("svgp", "bike", 1, "did not finish"),
        result("svgp", "bike", 2, nll=None),
    ]
    assert summarise(results, "nll") == {("bike", "svgp"): Summary((1.0,), ("did not finish", "not finite"))}
    results = [result("svgp", "bike", 0, nll=1.0), result("alc", "bike", 1, nll=2.0), result("alc", "bike", 0, nll=0.0)]
    assert summarise(results, "nll")["bike", "svgp"] == Summary((1.0,), ("not run",))


def test_ranks_are_means_over_data_sets_and_splits():
    results = [
        result("a", "bike", 0, nll=1.0), result("b", "bike", 0, nll=2.0), result("c", "bike", 0, nll=3.0),
        result("a", "bike", 1, nll=2.0), result("b", "bike", 1, nll=1.0), result("c", "bike", 1, nll=2.0),
        result("a", "pol", 0, nll=5.0), result("b", "pol", 0, "failed"), result("c", "pol", 0, nll=4.0),
    ]  # fmt: skip
    ranks, pairs = mean_ranks(results, "nll", ["a", "b", "c"])
    assert pairs == 3
    assert ranks == pytest.approx({"a": (1 + 2.5 + 2) / 3, "b": (2 + 1 + 3) / 3, "c": (3 + 2.5 + 1) / 3})
    results.append(result("a", "kin40k", 0, nll=0.0))  # b and c were not run there
    assert mean_ranks(results, "nll", ["a", "b", "c"])[1] == 3


def test_winners_overlap_with_the_best_within_a_standard_error():
    row = {
        "a": Summary((1.0, 1.2)),
        "b": Summary((1.18, 1.38)),
        "c": Summary((2.0, 2.1)),
        "d": Summary((0.5,), ("failed",)),
    }
    assert winners(row, "nll") == {"a", "b"}  # 1.1 ± 0.1 and 1.28 ± 0.1
    assert winners({"a": Summary((0.95,)), "b": Summary((0.88,))}, "coverage_90") == {"b"}
    assert winners({"a": Summary((0.5,)), "b": Summary((0.5,)), "c": Summary((0.6,))}, "nll") == {"a", "b"}


def test_the_bold_figures_of_the_paper_follow_the_rule():
    """Protein in tab:uci_regression_full: MLL-k and LOO-k are bold in NLL, MLL alone in RMSE."""
    table = paper_tables.load("univariate").content["metrics"]

    def row(metric, name):
        return {m: Summary((f[0] - f[1], f[0] + f[1])) for m, f in table[metric][name].items() if f}

    assert winners(row("nll", "Protein"), "nll") == {"MLL-k", "LOO-k"}
    assert winners(row("rmse", "Protein"), "rmse") == {"MLL"}
    assert winners(row("nll", "Kin40K"), "nll") == {"LOO-k"}


# --- the paper's figures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(PAPER.glob("*.json")), ids=lambda path: path.stem)
def test_paper_figures_are_well_formed(path):
    content = json.loads(path.read_text())
    assert content["source"].startswith("Jankowiak and Pleiss")
    assert content["table"]
    for tables in (content.get("metrics", {}),):
        for rows in tables.values():
            assert rows.keys() <= set(paper_tables.DATA_NAMES.values()) | {"Susy", "Rt.-Baxter"}
            for row in rows.values():
                assert list(row) == content["methods"]
                for figure in row.values():
                    assert figure is None or (1 <= len(figure) <= 2 and all(isinstance(v, float) for v in figure))


@pytest.mark.parametrize("name", RANKED)
def test_ranks_of_the_paper_add_up(name):
    """So every method was ranked in every split: one without a result (ALC on Keggdirected) must have been last."""
    for ranks in paper_tables.load(name).content["ranks"].values():
        count = len(ranks)
        assert sum(ranks.values()) == pytest.approx(count * (count + 1) / 2, abs=0.011)


def test_catalogue_names_methods_and_columns_that_exist():
    for experiment in EXPERIMENTS.values():
        columns = paper_tables.load(experiment.paper).content.get("methods", [])
        for entry in experiment.entries:
            assert experiment.kind in ALL_METHODS[entry.method].kind
            assert ALL_METHODS[entry.method].about
            assert not (columns and entry.paper) or entry.paper in columns
        assert (Path(report.__file__).parent / f"{experiment.where.split(':')[0]}.py").exists()


# --- the two files --------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """Fails on tags that do not close in order."""

    VOID = frozenset({"meta", "br", "path", "use", "rect"})

    def __init__(self):
        super().__init__()
        self.open, self.tables, self.figures = [], 0, 0

    def handle_starttag(self, tag, attrs):
        self.tables += tag == "table"
        self.figures += tag == "figure"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of several experiments, and their report."""
    tmp_path = tmp_path_factory.mktemp("results")
    rng = np.random.default_rng(0)

    def put(one):
        store.write(tmp_path / one["experiment"] / one["entry"] / f"{one['data']}-{one['split']}.json", one)

    for entry in ("loo-k-calibrated", "loo-k", "svgp"):
        for data in ("bike", "pol"):
            for split in range(3):
                nll, score = rng.normal() - (2 if entry == "loo-k" else 0), 0.1 + 0.01 * rng.random()
                put(result(entry, data, split, nll=nll, rmse=score, crps=score / 2, coverage_90=0.9))
    put(result("alc", "bike", 0, "did not finish"))
    for gamma in ("0", "4"):
        for entry in ("loo-k", "exact-mll"):
            put(result(entry, f"cubic-{gamma}", 0, experiment="misspecification", nll=1.0, rmse=0.5))
    line = {"values": [0.5, 1.0, 2.0], "objective": [-1.0, 0.0, -2.0], "largest_at": 2.7}
    curves = {name: {"kernel_scale": line, "noise_std": line} for name in ("LOO-inf", "LOO-128", "MLL", "SVGP")}
    put({**result("objectives", "bike", 0, experiment="curves"), "curves": curves})
    by_k = {str(k): {"nll": -k / 100, "rmse": 1 / k, "crps": 1 / k} for k in (8, 16)}
    put({**result("loo-k", "bike", 0, experiment="k_dependence"), "by_k": by_k})
    put(result("loo-32", "rows-1000", 0, experiment="runtime", seconds_per_step=0.002))
    put(result("loo-k-tied", "titanic", 0, experiment="binary", nll=0.4, error=0.2, brier=0.3))
    put(result("pgvi", "titanic", 0, "failed", experiment="binary"))
    report.build(tmp_path)
    return tmp_path


def test_report_has_all_tables_and_figures(folder):
    drawn = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert drawn == {"curves", "misspecification", "k_dependence", "runtime"}
    html, text = (folder / "report.html").read_text(), (folder / "report.md").read_text()
    tags = Tags()
    tags.feed(html)
    assert not tags.open
    assert tags.figures == 4
    for title in ("NLL", "RMSE", "CRPS", "Share inside the 90 % interval", "Mean ranks, all methods", "Brier score"):
        assert f"### {title}" in text
        assert f"<h3>{title}</h3>" in html
    assert text.count("\n| data set |") == html.count('<th scope="col">data set</th>')
    assert "Mean ranks, methods of the paper's rank table" in text
    assert "Where the objectives are largest" in text
    assert "| bike 1,500 rows | -0.080 | **-0.160** |" in text  # k = 8 and 16


def test_report_is_one_page_that_needs_nothing_else(folder):
    html = (folder / "report.html").read_text()
    assert "<script" not in html
    assert not re.search(r'(?:src|href)="(?!#)', html.replace('xlink:href="#', 'href="#'))
    assert "prefers-color-scheme: dark" in html
    assert len(re.findall(r'\bid="([^"]+)"', html)) == len(set(re.findall(r'\bid="([^"]+)"', html)))


def test_report_sets_our_figures_beside_the_papers(folder):
    text = (folder / "report.md").read_text()
    univariate = text[text.index("## Univariate regression") :]
    row = next(line for line in univariate.splitlines() if line.startswith("| bike 1,500 rows"))
    assert "paper -2.771" in row
    assert re.search(r"paper -2\.771, [+-]\d\.\d{3} (better|worse|same)", row)
    assert "-2.771 LOO-k" in row  # the best of the paper
    assert "did not finish<br>paper -1.397" in row  # ALC
    rising = {"values": [0.5, 1.0], "objective": [0.0, 1.0], "largest_at": 1.0}
    assert report_tables._maximum(rising, 3.55) == Cell("≥ 1", paper="3.55")
    assert "| bike, kernel scale σ_K 1,500 rows | 2.7<br>paper 3.55, -24 % different | 2.7<br>paper 4.64" in text


@pytest.mark.parametrize(
    ("values", "data", "tone"),
    [
        ((-4.0, -4.1), "bike", "better"),  # the paper has -2.771 ± 0.016
        ((-1.0, -1.1), "bike", "worse"),
        ((-2.78, -2.77), "bike", "same"),
        ((-4.0,), "bike", ""),  # one split: who knows
        ((0.6, 0.61), "higgs_18k", ""),  # other rows than the paper's
    ],
)
def test_differences_are_called_better_or_worse_where_that_is_known(values, data, tone):
    name = "binary" if data == "higgs_18k" else "univariate"
    results = [result("loo-k", data, split, experiment=name, nll=nll) for split, nll in enumerate(values)]
    experiment = dataclasses.replace(EXPERIMENTS[name], entries=(Entry("loo-k", "loo-k", "LOO-k"),))
    table = report_tables.score_table(experiment, results, ["loo-k"], "nll", paper_tables.load(name))
    cell = table.rows[0][1]
    assert cell.tone == tone
    assert float(cell.difference) == pytest.approx(np.mean(values) - float(cell.paper), abs=6e-4)


def test_ranks_are_of_what_most_methods_were_run_on():
    results = [
        result(entry, data, split, nll=nll)
        for entry, nll in (("loo-k", 1.0), ("svgp", 2.0), ("alc", 3.0))
        for data in ("bike", "pol")
        for split in range(5)
    ]
    results += [result("loo-k", "kin40k", 0, nll=9.0), result("catboost", "bike", 0, nll=0.0)]
    results += [
        result("swsgp", data, split, nll=4.0) for data, splits in (("bike", 5), ("pol", 4)) for split in range(splits)
    ]
    entries = ["loo-k", "svgp", "alc", "catboost", "swsgp"]
    table = report_tables.rank_tables(EXPERIMENTS["univariate"], results, entries, paper_tables.load("univariate"))[0]
    assert table.head == ["metric", "loo-k", "svgp", "alc", "swsgp"]
    assert [cell.text for cell in table.rows[0]] == ["NLL", "1.00", "2.00", "3.00", "4.00"]
    assert table.notes[0].startswith("Pairs of data set and split: 9, of bike, pol.")
    assert table.notes[1] == "Not ranked, because not run on nine tenths of these: catboost."


def test_report_says_what_is_behind_the_figures(folder):
    text = (folder / "report.md").read_text()
    facts = next(line for line in text.splitlines() if line.startswith("3 splits;"))
    assert facts == ("3 splits; training rows 1,500; 18 done, 1 did not finish; full run; time limit of a fit 60 s.")
    assert "3 splits, full run. Did not end: alc (bike). Paper: tab:uci_regression_full." in text
    assert "Not ranked, because no fit ended: alc." in text
    assert "pgvi failed, 1 time: oh" in text
    assert "This is a quick run" not in text


def test_quick_results_are_called_so():
    composed, _ = report.compose([{**result("loo-k", "bike", 0, nll=1.0), "quick": True}])
    assert any(line.startswith("This is a quick run") for line in composed.about)
    assert "quick run" in composed.sections[0].facts


def test_a_folder_without_results_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="first `python -m experiments run NAME`"):
        report.build(tmp_path)


def test_unwarped_data_are_the_first_point_of_every_warping(monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "lines", lambda axes, series, markers="": drawn.append(series))
    names = ("unwarped-0", "cubic-4", "bent-above-4")
    figures.misspecification(
        [result("loo-k", n, 0, experiment="misspecification", nll=float(len(n)), rmse=1.0) for n in names]
    )
    nll = [series["loo-k"] for series in drawn[::2]]
    assert nll == [([0.0, 4.0], [-10.0, -12.0]), ([0.0, 4.0], [-10.0, -7.0])]


def test_settings_are_told_with_the_range_over_the_fits():
    fits = [result("svgp", "bike", split, nll=1.0) for split in (0, 1)]
    for fit, beta, kind in zip(fits, (0.1, 0.5), ("a", "b"), strict=True):
        fit["chosen"] = {"beta_reg": beta, "inducing": 512, "kind": kind, "outputs": [1, 2], "converged": True}
    composed, _ = report.compose([*fits, result("loo-k", "bike", 0, "failed")])
    told = "variational inducing points, GPyTorch; beta reg 0.1 to 0.5, inducing 512, kind a or b, converged yes."
    assert composed.sections[0].notes[0] == f"svgp: {told}"
    assert not any(note.startswith("loo-k:") for note in composed.sections[0].notes)
