"""The page of a study in a browser: from a file, without network, with working controls."""

import pytest

from isotrain.pages.study_page import write_study_page
from tests.pages.browser import CHROMIUM, PHONE, used
from tests.pages.small_run import HOSTILE
from tests.pages.small_study import EFFECT, TASKS, curves_of, result, runs_of, study_of

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")

DESK = """
open(true);
for (const place of all(".chart")) await scroll(place);
const charts = all(".chart").map((place) => place.dataset.chart);
const of = (...starts) => charts.filter((name) => starts.some((start) => name.startsWith(start)));
const next = (id) => get(id).options[1].value;
return {
  options: Object.fromEntries(["method", "metric", "place", "cloud"].map(
    (id) => [id, [...get(id).options].map((option) => option.value)])),
  changes: {
    method: await changes("method", "istar", ...charts),
    metric: await changes("metric", next("metric"), ...of("layers", "site", "training")),
    place: await changes("place", next("place"), ...of("score_against")),
    cloud: await changes("cloud", next("cloud"), ...of("training")),
  },
  images: all("img").length,
};
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    one = {"wic": TASKS["wic"]}
    curves = curves_of(one, steps=(0, 170))
    given = result(runs_of(one), study_of(one), question=HOSTILE, overrides=("long" * 40,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isotrain.pages.study_page.isotropy_curves", lambda *_: curves)
        page = write_study_page(folder / "study", given)
    return used(page, (1280, DESK), (390, PHONE))


def test_it_loads_without_an_error_a_request_or_an_element_of_a_text(found):
    (seen, _), said, asked = found
    assert (said, asked, seen["images"]) == ([], [], 0)


def test_every_control_changes_its_charts_and_back(found):
    seen = found[0][0]
    assert all(both == [True, True] for both in seen["changes"].values()), seen["changes"]
    assert seen["options"]["method"] == ["all", *EFFECT]
    sizes = [len(seen["options"][name]) for name in ("metric", "place", "cloud")]
    assert sizes == [2, 8, 6]  # a place has a metric; two views of two layers, and both sides


def test_nothing_is_wider_than_a_phone(found):
    phone = found[0][1]
    assert (phone["wide"], phone["scrolls"]) == ([], False)
    assert phone["own"] > 0, "wide tables scroll in their own box"
