"""The page of a study: its text, that it escapes, and that it is whole for any study."""

import pytest

from isotrain.pages.study_page import write_study_page
from isotrain.results.runs import Gap
from tests.pages.small_run import HOSTILE
from tests.pages.small_study import EFFECT, TASKS, curves_of, result, runs_of, study_of
from tests.pages.test_report import page_of
from tests.stored_texts import same_text

WIC = {"wic": TASKS["wic"]}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "does_isotropy_help"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isotrain.pages.study_page.isotropy_curves", lambda *_: curves_of())
        assert write_study_page(folder, result()) == folder / "study.html"
    assert not (folder / "figures").exists()
    return page_of(folder / "study.html")


def small(tmp_path, methods=tuple(EFFECT), seeds=range(3), change=lambda run: run, **more):
    """The page of one task; `more` is of the study or of the result."""
    of_study = {key: more.pop(key) for key in ("margin", "published", "name") if key in more}
    runs = [change(run) for run in runs_of(WIC, methods, seeds)]
    study = study_of(WIC, methods, seeds, **of_study)
    given = result(runs, study, **{"headline": (), **more})
    return page_of(write_study_page(tmp_path / "study", given))


def test_what_a_reader_reads(page):
    same_text("study.txt", page.text)
    assert len(page.ids) == len(set(page.ids))


def test_every_task_and_score_has_its_charts(page):
    scores = ("wic_test_accuracy", "wic_val_accuracy", "stsb_test_spearman", "stsb_val_spearman")
    wanted = [f"differences_{name}" for name in scores]
    for task in TASKS:
        wanted += [f"score_against_isotropy_{task}", f"training_{task}", f"site_{task}_pooled"]
        wanted += [f"layers_{task}_{view}" for view in ("cls", "tokens")]
    assert sorted(page.charts) == sorted(wanted)
    options = {row["place"] for row in page.charts["score_against_isotropy_wic"]["data"]["values"]}
    assert len(options) == 8, "two metrics in two views of the last layer and at both sides"


def test_hostile_texts_stay_texts(tmp_path):
    given = {"name": HOSTILE, "question": HOSTILE, "encoder": HOSTILE, "command": HOSTILE}
    given |= {"overrides": (HOSTILE,), "works": (HOSTILE,), "gaps": [Gap("wic", HOSTILE, 0, "-")]}
    page = small(tmp_path, methods=("none", HOSTILE, "$x$"), **given)
    assert "img" not in page.tags
    assert len(page.scripts) == 3
    assert page.text.count(HOSTILE) >= 10


def test_collapsed_predictions_are_marked_and_the_table_comes_without_them_too(tmp_path):
    def broken(run):
        return run._replace(degenerate="all of one class") if run[1:3] == ("istar", 1) else run

    page = small(tmp_path, change=broken)
    assert page.text.count("wic, istar, seeds 1: all of one class") == 1
    _, is_there, without = page.text.partition("\nwic, without collapsed predictions\n")
    assert is_there
    assert "\nistar | 2 |" in without


def test_thirty_methods_with_long_names_and_no_finite_score(tmp_path):
    methods = ("none", *(f"method_{k}_{'long' * 12}" for k in range(29)))
    gaps = [Gap("wic", method, 0, "not run") for method in methods * 2]
    none = {"change": lambda run: run._replace(scores={}), "gaps": gaps}
    page = small(tmp_path, methods=methods, seeds=[0], **none)
    assert "What is missing (60)" in page.text
    assert "nan" not in page.text.lower().split()


def test_published_values_stand_beside(tmp_path):
    published = {"tasks": {"wic": {"none": 0.6404, "project": 0.62}}, "source": "a talk of 2020"}
    page = small(tmp_path, published=published)
    drawn = page.charts["differences_wic_val_accuracy"]["data"]["values"]
    assert {row["method"]: row["published"] for row in drawn} == {
        **{"project": -2.04, "protect_labels": None, "istar": None}
    }
    assert "Published: a talk of 2020." in page.text


@pytest.mark.parametrize("planned", [0, 4])
def test_an_empty_study_has_a_page(tmp_path, planned):
    nothing = result([], study_of(WIC, ("none",), (0,)), headline=(), command="", n_planned=planned)
    page = page_of(write_study_page(tmp_path / "study", nothing))
    assert page.charts == {}
    assert ("4 of 4 runs have no result" in page.text) == bool(planned)
    assert not list((tmp_path / "study").glob("*.part"))
