"""The page of a study: what it says, that it escapes, and that it is whole for any study."""

import pytest

from isotrain.pages.study_answer import CAUTION
from isotrain.pages.study_page import write_study_page
from isotrain.results.runs import Gap
from tests.pages.small_run import HOSTILE
from tests.pages.small_study import EFFECT, TASKS, curves_of, result, runs_of, study_of
from tests.pages.test_report import Page

WIC = {"wic": TASKS["wic"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "does_isotropy_help"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isotrain.pages.study_page.isotropy_curves", lambda *_: curves_of())
        assert write_study_page(folder, result()) == folder / "study.html"
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "study.html").read_text(encoding="utf-8"))


def small(tmp_path, methods=tuple(EFFECT), seeds=range(3), change=lambda run: run, **more):
    """The page of one task; `more` is of the study or of the result."""
    of_study = {key: more.pop(key) for key in ("margin", "published", "name") if key in more}
    runs = [change(run) for run in runs_of(WIC, methods, seeds)]
    study = study_of(WIC, methods, seeds, **of_study)
    path = write_study_page(tmp_path / "study", result(runs, study, **{"headline": (), **more}))
    return Page(path.read_text(encoding="utf-8"))


def test_what_a_reader_sees_first(page):
    own = next(r.mean for r in result().rows if (r.method, r.score) == ("none", "test/accuracy"))
    for wanted in (
        "Study does_isotropy_help",
        "2 tasks × 4 methods × 8 seeds",
        "64 of 64 runs finished",
        "Does isotropy help while fine-tuning?",
        "No method is shown to score higher than the baseline none. Lower: project (wic",
        f"wic: accuracy on test, N = 1,400, n = 8 seeds, baseline none {100 * own:.1f}",
        "The same within ±1.0 points: protect_labels",
        "seeds would show one point",
    ):
        assert wanted in page.text
    assert page.text.count(CAUTION) == 1


def test_sections_in_their_order(page):
    titles = [
        *("Differences in the score", "Score against isotropy", "Isotropy by layer at the end"),
        *("Isotropy through training", "What was compared", "All numbers"),
        *("Repeat this study", "How to read it"),
    ]
    behind = page.text[page.text.index("How to read it") :]  # the contents list ends with it
    places = [behind.index(title) for title in titles]
    assert places[:-1] == sorted(places[:-1])
    for wanted in (
        "isotropy=istar site=[tokens]",
        "encoder=minilm threads=1",
        "isotrain run mine.yaml -j 2",
        "a difference beyond the margin, ±1.0 points",
        "Rudman & Eickhoff 2024",
        "CI over seeds and examples",
        "exact sign-flip test",
    ):
        assert wanted in behind
    assert "published" not in behind  # nothing was: no column, no cross
    assert "†" not in behind


def test_figures_are_files_too(folder):
    found = {path.name for path in (folder / "figures").iterdir()}
    names = [
        f"differences_{task}_{key}"
        for task, key in (
            ("wic", "test_accuracy"),
            ("wic", "val_accuracy"),
            ("stsb", "test_spearman"),
            ("stsb", "val_spearman"),
        )
    ]
    for metric, tasks in (("isoscore_corrected", TASKS), ("mean_cosine", ["wic"])):
        names += [f"score_against_{metric}_{task}" for task in TASKS]
        for task in tasks:
            names += [f"layers_{task}_{metric}_{view}" for view in ("cls", "tokens")]
            names.append(f"site_{task}_{metric}_pooled")
    assert found == {f"{name}.{kind}" for name in names for kind in ("svg", "png")}
    svg = (folder / "figures" / "layers_wic_mean_cosine_cls.svg").read_text(encoding="utf-8")
    assert "protect_labels" in svg  # outside of the page a figure names its methods


def test_hostile_texts_stay_texts(tmp_path):
    given = {"name": HOSTILE, "question": HOSTILE, "encoder": HOSTILE, "command": HOSTILE}
    given |= {"overrides": (HOSTILE,), "works": (HOSTILE,), "changes": (HOSTILE,)}
    given |= {"gaps": [Gap("wic", HOSTILE, 0, "not run")]}
    page = small(tmp_path, methods=("none", HOSTILE, "$x$"), **given)
    assert "img" not in page.tags
    assert page.tags.count("script") == 1
    assert page.text.count(HOSTILE) >= 10


def test_collapsed_predictions_are_marked_and_the_table_comes_without_them_too(tmp_path):
    def broken(run):
        return run._replace(degenerate="all of one class") if run[1:3] == ("istar", 1) else run

    page = small(tmp_path, change=broken)
    assert "1 of 12 runs have collapsed predictions (methods: istar)" in page.text
    assert page.text.count("All numbers without collapsed predictions") == 2  # contents, heading
    without = page.text[page.text.rindex("All numbers without collapsed") :]
    assert "istar 2 " in without
    assert page.text.count("wic, istar, seeds 1: all of one class") == 1


def test_thirty_methods_with_long_names_and_no_finite_score(tmp_path):
    methods = ("none", *(f"method_{k}_{'long' * 12}" for k in range(29)))

    def lost(run):
        return run._replace(scores={})

    page = small(
        tmp_path,
        methods=methods,
        seeds=[0],
        change=lost,
        gaps=[Gap("wic", method, 0, "not run") for method in methods * 2],
    )
    assert "Nothing to compare with none on wic." in page.text
    assert "All 60 that are missing" in page.text
    assert "nan" not in page.text.lower().split()


def test_published_values_stand_beside(tmp_path):
    published = {"tasks": {"wic": {"none": 0.6404, "project": 0.62}}, "source": "a talk of 2020"}
    page = small(tmp_path, published=published)
    assert "Published accuracy on dev (a talk of 2020): none 64.0, here" in page.text
    assert "Grey cross: the published difference." in page.text
    assert "Published: a talk of 2020." in page.text


@pytest.mark.parametrize("planned", [0, 4])
def test_an_empty_study_has_a_page(tmp_path, planned):
    nothing = result([], study_of(WIC, ("none",), (0,)), headline=(), command="", n_planned=planned)
    path = write_study_page(tmp_path / "study", nothing)
    page = Page(path.read_text(encoding="utf-8"))
    assert "No score of a finished run." in page.text
    assert "The command was not recorded." in page.text
    assert ("4 of 4 runs have no result" in page.text) == bool(planned)
    assert not list((tmp_path / "study").glob("*.part"))
