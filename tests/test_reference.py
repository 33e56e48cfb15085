"""Doc strings of the public surface: everything that can be passed, is returned or was learned is explained.

The pages of docs/reference name each class and method; numpydoc reads the doc strings as the site does.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import nearfield
from nearfield import GPClassifier, GPCountRegressor, GPRegressor
from nearfield.estimators import ESTIMATORS

validate = pytest.importorskip("numpydoc.validate", reason="numpydoc is not installed: pip install 'nearfield[docs]'")

PAGES = Path(__file__).parents[1] / "docs" / "reference"
OF_SKLEARN = {"get_params", "set_params", "set_output", "get_metadata_routing"}
RULES = {  # of numpydoc: see its page on validation
    "GL06", "GL07", "GL08",  # sections are known ones, in their order; there is a doc string
    "PR01", "PR02", "PR03", "PR04", "PR06", "PR07", "PR10",  # parameters: all, no others, in order, typed, described
    "RT01", "RT03", "SS01", "SS02", "SS03",  # what is returned is described; a summary that is a sentence
}  # fmt: skip


def directives(kind):
    text = "\n".join(page.read_text() for page in sorted(PAGES.glob("*.md")))
    found = re.findall(rf"^\.\. {kind}:: (\S+)\n(?:   :members: (.*)\n)?", text, re.M)
    return [name for name, _ in found] + [
        f"{name}.{own}" for name, members in found for own in members.split(", ") if own
    ]


CLASSES = [name for name in directives("autoclass") if name.split(".")[-1][0].isupper()]
METHODS = [name for name in directives("(?:autoclass|automethod|autofunction)") if name not in CLASSES]


def resolved(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def faults(name):
    return [f"{name}: {code} {what}" for code, what in validate.validate(name)["errors"] if code in RULES]


@pytest.mark.parametrize("name", CLASSES)
def test_doc_strings_of_classes(name):
    """Results of methods have attributes and nothing that users pass."""
    found = faults(name)
    if not inspect.signature(resolved(name)).parameters or not hasattr(resolved(name), "get_params"):
        has_parameters = "\n    Parameters\n" in (resolved(name).__doc__ or "")
        found = found if has_parameters else [fault for fault in found if " PR0" not in fault]
    assert not found


@pytest.mark.parametrize("name", [name for name in METHODS if name.split(".")[-1] not in OF_SKLEARN])
def test_doc_strings_of_methods(name):
    returns_nothing = {"save", "report", "explore"}
    assert not [fault for fault in faults(name) if " RT0" not in fault or name.split(".")[-1] not in returns_nothing]


@pytest.mark.parametrize("name", [*directives("autoproperty"), *directives("autoexception")])
def test_attributes_and_warnings_have_a_sentence(name):
    assert re.match(r"[A-Z].*[.)\w]$", inspect.getdoc(resolved(name)).split("\n\n")[0], re.S)


def test_every_public_name_is_on_a_page():
    named = {name.split(".")[-1] for kind in ("autoclass", "autoexception") for name in directives(kind)}
    assert named >= {name for name in nearfield.__all__ if not name.startswith("_")}


@pytest.mark.parametrize("name", [name for name in CLASSES if hasattr(resolved(name), "get_params")])
def test_every_method_of_an_estimator_is_on_its_page(name):
    own, shown = resolved(name), [*METHODS, *directives("autoproperty")]
    there = {one.removeprefix(f"{name}.") for one in shown if one.startswith(f"{name}.")}
    kinds = property | classmethod | FunctionType
    public = {one for one in dir(own) if one[0] != "_" and isinstance(inspect.getattr_static(own, one), kinds)}
    assert there - OF_SKLEARN == {one for one in public if not re.fullmatch(r"set_\w+_request", one)} - OF_SKLEARN


@pytest.mark.usefixtures("brief_training")
@pytest.mark.parametrize("name", [name for name in (*CLASSES, *METHODS) if ">>>" in (resolved(name).__doc__ or "")])
def test_examples_run(name):
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(resolved(name)), {}, name, None, None)
    assert doctest.DocTestRunner().run(example).failed == 0


# --- what is said is so ---------------------------------------------------------------------------------------------


def documented(cls, section):
    from numpydoc.docscrape import ClassDoc

    return {item.name: item for item in ClassDoc(cls)[section]}


@pytest.mark.parametrize("name", [*CLASSES, *METHODS])
def test_defaults_are_those_of_the_signature(name):
    from numpydoc.docscrape import NumpyDocString

    found = resolved(name)
    said = {item.name: item.type for item in NumpyDocString(inspect.getdoc(found) or "")["Parameters"]}
    own = {} if name.split(".")[-1] in OF_SKLEARN else dict(inspect.signature(found).parameters)
    for parameter in own.values():
        told = re.search(r"default=(.*)$", said.get(parameter.name, ""))
        if told is not None and re.fullmatch(r'".*"|None|True|False|[\d.]+|\(\)', told[1]):
            assert repr(parameter.default).replace("'", '"') == told[1], parameter
        elif told is None and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            assert parameter.default is parameter.empty or parameter.name not in said, parameter


def test_estimators_say_the_same_of_the_same_parameters():
    """Their doc strings are copies of each other; these differ on purpose."""
    own = {"likelihood", "auxiliary", "predictive", "max_steps"}
    first, *others = (documented(cls, "Parameters") for cls in ESTIMATORS.values())
    for other in others:
        for name in (first.keys() & other.keys()) - own:
            assert other[name] == first[name]


@pytest.mark.usefixtures("brief_training")
@pytest.mark.parametrize("cls", [GPRegressor, GPClassifier, GPCountRegressor])
def test_attributes_of_a_fit_are_documented(cls):
    """Those that are there, no others, but for two that are there under circumstances."""
    rng = np.random.default_rng(0)
    model = cls(random_state=0).fit(rng.standard_normal((40, 2)), rng.integers(0, 2, 40))
    properties = {name for name in dir(cls) if isinstance(inspect.getattr_static(cls, name), property)}
    there = {name for name in (*vars(model), *properties) if name.endswith("_") and not name.startswith("_")}
    assert documented(cls, "Attributes").keys() - {"feature_names_in_", "noise_scale_"} == there
