"""The page of a study: what it says, that it escapes, and that it is whole for any study."""

from __future__ import annotations

import math

import pytest

from isotrain.pages.study_answer import CAUTION
from isotrain.pages.study_content import Named, StudyContent
from isotrain.pages.study_page import write_study_page
from tests.pages.small_study import EFFECT, HOSTILE, TASKS, content, rows_of, runs_of
from tests.pages.test_report import Page

WIC = {"wic": TASKS["wic"]}
BARE = {"curves": (), "metrics": ()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "does_isotropy_help"
    assert write_study_page(folder, content()) == folder / "study.html"
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "study.html").read_text(encoding="utf-8"))


def small(tmp_path, arms=tuple(EFFECT), seeds=range(3), change=lambda run: run, **more):
    """The page of one task, without isotropy unless it is given."""
    runs = tuple(change(run) for run in runs_of(WIC, arms, seeds))
    given = {
        **BARE,
        "tasks": (Named("wic", ("task=wic",)),),
        "arms": tuple(Named(arm, (f"isotropy={arm}",)) for arm in arms),
        "seeds": tuple(seeds),
        "runs": runs,
        "rows": rows_of(runs, arms, 0.01),
        "n_planned": len(runs),
    }
    path = write_study_page(tmp_path / "study", content(**{**given, **more}))
    return Page(path.read_text(encoding="utf-8"))


def test_what_a_reader_sees_first(page):
    own = content().rows[4].own.mean
    for wanted in (
        "Study does_isotropy_help",
        "2 tasks × 4 arms × 8 seeds",
        "64 of 64 runs finished",
        "Does isotropy help while fine-tuning?",
        "Higher score than the baseline none: no arm. Lower: project (wic",
        f"wic: accuracy on test (N = 1,400, n = 8 seeds, baseline none {own:.3f})",
        "The same within ±0.01: protect_labels",
        "seeds would show 0.01",
    ):
        assert wanted in page.text
    assert page.text.count(CAUTION) == 1


def test_sections_in_their_order(page):
    titles = [
        *("What was compared", "Differences in the score", "Score against isotropy"),
        *("Isotropy by layer at the end", "Isotropy through training", "All numbers", "Runs"),
        *("Repeat this study", "How to read it"),
    ]
    behind = page.text[page.text.index("How to read it") :]  # the contents list ends with it
    places = [behind.index(title) for title in titles]
    assert places[:-1] == sorted(places[:-1])
    for wanted in (
        "isotropy=istar site=[tokens]",
        "encoder=minilm threads=1",
        "isotrain run does_isotropy_help --jobs 2",
        "the margin that was stated with the study",
        "Rudman & Eickhoff 2024",
        "95 % interval, rows and seeds",
        "(sign flips)",
        "All 64 finished runs",
        "1784da9",
        "wic/istar-0123456789",
    ):
        assert wanted in behind
    assert "published" not in behind  # nothing was: no column, no cross
    assert "degenerate" not in behind.replace("degenerate runs.", "")


def test_every_number_of_the_tables_is_there(page):
    for row in content().rows:
        if row.score.startswith(("test", "val")):
            assert f"{row.own.mean:.3f}" in page.text
            if row.difference:
                low, high = row.difference.estimate[3:]
                ends = (
                    f"{end:+z.3f}".replace("-", "−").replace("+0.000", "0.000")
                    for end in (low, high)
                )
                assert f"[{', '.join(ends)}]" in page.text


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
    assert "protect_labels" in svg  # outside of the page a figure names its arms


def test_nothing_from_outside_is_needed_and_ids_are_unique(page):
    assert [a for a in page.addresses if not a.startswith(("#", "data:"))] == []
    assert len(page.ids) == len(set(page.ids))
    assert page.handlers == []


def test_hostile_texts_stay_texts(tmp_path):
    given = {
        "name": HOSTILE,
        "question": HOSTILE,
        "facts": (HOSTILE,),
    }
    given |= {"commands": (HOSTILE,), "overrides": (HOSTILE,), "methods": (HOSTILE,)}
    given |= {"warnings": (HOSTILE,), "missing": (HOSTILE,), "published_source": HOSTILE}
    page = small(tmp_path, arms=("none", HOSTILE, "$x$"), **given)
    assert "img" not in page.tags
    assert page.tags.count("script") == 1
    assert page.text.count(HOSTILE) >= 10


def test_degenerate_runs_are_marked_and_the_table_comes_without_them_too(tmp_path):
    def broken(run):
        return run._replace(degenerate="all of one class") if run[1:3] == ("istar", 1) else run

    rows = rows_of(
        [r for r in runs_of(WIC, seeds=range(3)) if r[1:3] != ("istar", 1)], tuple(EFFECT)
    )
    page = small(tmp_path, change=broken, rows_without_degenerate=rows)
    assert "1 of 12 runs are degenerate (istar)" in page.text
    assert page.text.count("All numbers without degenerate runs") == 2  # contents, heading
    assert "all of one class" in page.text
    assert "istar 2 " in page.text[page.text.rindex("All numbers without degenerate") :]


def test_one_seed_says_that_nothing_can_be_told(tmp_path):
    page = small(tmp_path, seeds=[3], margin=None)
    for wanted in (
        "One seed: no spread is known",
        "Nothing can be said of any arm",
        "on one seed)",
        "No margin was stated",
        "No isotropy was measured in these runs.",
    ):
        assert wanted in page.text
    assert "nan" not in page.text.lower().split()


def test_thirty_arms_with_long_names_and_no_finite_score(tmp_path):
    arms = ("none", *(f"arm_{k}_{'long' * 12}" for k in range(29)))

    def lost(run):
        return run._replace(values=dict.fromkeys(run.values, math.nan))

    page = small(tmp_path, arms=arms, seeds=[0], change=lost, missing=("wic: lost",) * 50)
    assert "Nothing to compare with none on wic." in page.text
    assert "All 50 that are missing" in page.text
    assert "nan" not in page.text.lower().split()


def test_published_values_stand_beside(tmp_path):
    def published(row):
        values = {"none": 0.6404, "project": 0.62} if row.score == "val/accuracy" else {}
        return row._replace(published=values.get(row.arm))

    rows = tuple(map(published, rows_of(runs_of(WIC, seeds=range(3)), tuple(EFFECT))))
    page = small(tmp_path, rows=rows, published_source="a talk of 2020")
    assert "Published accuracy on dev (a talk of 2020): none 0.640, here" in page.text
    assert "Grey cross: the published difference." in page.text
    assert "Published: a talk of 2020." in page.text


def test_what_selected_its_weights_and_what_is_said_below_the_tables(tmp_path, page):
    def selected(row):
        best = "7" if row.score == "val/accuracy" else ""
        notes = ("no interval: of other rows",) if row.arm in ("project", "istar") else ()
        return row._replace(best_of=best, notes=notes if best else ())

    rows = tuple(map(selected, rows_of(runs_of(WIC, seeds=range(3)), tuple(EFFECT))))
    found = small(tmp_path, rows=rows).text
    best = "dev: best of 7 evaluations of each run"
    assert f"wic, accuracy on dev, N = 638, {best}" in found
    assert f"Scores of {best}." in found
    assert "accuracy on dev: project, istar: no interval: of other rows." in found
    assert "a score of dev is the best of its evaluations" in found
    assert "None is the best of several" not in found
    assert "None is the best of several" in page.text
    assert "best of 7" not in page.text


def test_how_p_is_found(page):
    assert (
        "that of all flips of signs for 8 to 40 pairs, and of the paired t test other" in page.text
    )
    assert "p below 0.05/m four times in five" in page.text


@pytest.mark.parametrize("planned", [0, 4])
def test_an_empty_study_has_a_page(tmp_path, planned):
    nothing = StudyContent("s", "none", (Named("wic"),), (Named("none"),), (0,), (), ())
    path = write_study_page(tmp_path / "study", nothing._replace(n_planned=planned))
    page = Page(path.read_text(encoding="utf-8"))
    assert "No score of a finished run." in page.text
    assert "The command was not recorded." in page.text
    assert ("4 of 4 runs have no result" in page.text) == bool(planned)
    assert not list((tmp_path / "study").glob("*.part"))


def test_degenerate_runs_are_told_below_the_runs_and_their_times_are_whole(tmp_path):
    def broken(run):
        ended = run._replace(finished_at="2031-02-03T04:05:06+01:00")
        return ended._replace(degenerate="long reason " * 9) if run.arm == "istar" else ended

    page = small(tmp_path, change=broken)
    runs = page.text[page.text.rindex("finished, UTC") :]
    assert "2031-02-03 03:05 wic/none" in runs
    assert "istar 0 yes " in runs
    assert runs.count("Degenerate: wic, istar, seeds 0, 1, 2: long reason") == 1
