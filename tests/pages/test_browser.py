"""The page of a run in a browser: from a file, without network, with working controls."""

import pytest

from isotrain.pages.report import write_report
from tests.pages.browser import CHROMIUM, PHONE, used
from tests.pages.small_run import HOSTILE, write_run

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")

DESK = """
const seen = {};
for (const place of all(".halves .chart")) await scroll(place);
scrollTo(0, 0);
seen.screen = all(".verdict, .halves .chart").map(
  (part) => part.getBoundingClientRect().bottom + scrollY);
seen.drawnFirst = all(".chart").filter(drawing).map((place) => place.dataset.chart);
dispatchEvent(new Event("beforeprint"));
await wait(0); // a browser prints as soon as the event was handled
seen.printed = all(".chart").filter(drawing).length;
dispatchEvent(new Event("afterprint"));
document.querySelector('a[href="#values"]').click();
seen.opened = [get("values").open, get("maps").open];
open(true);
seen.drawn = [];
for (const place of all(".chart")) seen.drawn.push(await scroll(place) !== null);
seen.changes = {
  metric: await changes("metric", get("metric").options[1].value, "heatmap", "sites"),
  view: await changes("view", get("view").options[1].value, "heatmap"),
  layer: await changes("layer", "1", "spectra_cls", "spectra_tokens", "spectra_mean"),
  cloud: await changes("cloud", "layer_02/tokens", "maps"),
  at: await changes("at", "0", "maps"),
  colour: await changes("colour", "nothing", "maps"),
};
seen.readings = all("[data-part=reading]").map((part) => part.hidden);
set("metric", get("metric").options[1].value);
seen.readingsOfNext = all("[data-part=reading]").map((part) => part.hidden);
set("cloud", "layer_02/tokens");
const pictures = new Set();
for (const { value } of get("colour").options) {
  set("colour", value);
  await wait(300);
  pictures.add(picture("maps"));
}
seen.colours = pictures.size;
named("maps").scrollIntoView();
const canvas = named("maps"), box = canvas.getBoundingClientRect(), told = new Set();
const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
for (let k = 0; k < pixels.length; k += 4) {
  const colour = pixels.slice(k, k + 3);
  if (Math.max(...colour) - Math.min(...colour) < 60) continue; // no embedding is there
  const x = box.left + (k / 4) % canvas.width, y = box.top + Math.floor(k / 4 / canvas.width);
  canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y, bubbles: true }));
  told.add((get("vg-tooltip-element") || { textContent: "" }).textContent);
}
seen.told = [...told];
seen.images = all("img").length;
open(false);
const folded = () => all("main details:not([open])").length;
seen.folded = [folded()];
dispatchEvent(new Event("beforeprint"));
seen.folded.push(folded());
dispatchEvent(new Event("afterprint"));
seen.folded.push(folded());
return seen;
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    page = write_report(write_run(tmp_path_factory.mktemp("browser") / "run"))
    return used(page, (1280, DESK), (390, PHONE))


@pytest.fixture
def seen(found):
    return found[0][0]


def test_it_loads_without_an_error_and_without_a_request(found):
    _, said, asked = found
    assert (said, asked) == ([], [])


def test_the_first_screen_holds_the_answers_and_the_charts(seen):
    assert max(seen["screen"]) <= 800


def test_charts_are_drawn_when_a_reader_gets_there(seen):
    assert seen["drawnFirst"] == ["score", "loss", "heatmap", "sites"]
    assert len(seen["drawn"]) == seen["printed"] == 9
    assert all(seen["drawn"])


def test_every_control_changes_its_charts_and_back(seen):
    assert all(both == [True, True] for both in seen["changes"].values()), seen["changes"]
    assert len(seen["changes"]) == 6
    assert seen["colours"] == 4


def test_how_to_read_it_is_of_the_metric_that_is_shown(seen):
    for number, hidden in enumerate((seen["readings"], seen["readingsOfNext"])):
        assert [at for at, is_hidden in enumerate(hidden) if not is_hidden] == [number]


def test_a_hostile_token_is_told_and_makes_no_element(seen):
    assert any(HOSTILE in text for text in seen["told"])
    assert seen["images"] == 0


def test_a_link_opens_its_section_alone(seen):
    assert seen["opened"] == [True, False]


def test_everything_is_open_in_print(seen):
    closed, in_print, again = seen["folded"]
    assert closed == again > 0
    assert in_print == 0


def test_nothing_is_wider_than_a_phone(found):
    phone = found[0][1]
    assert (phone["wide"], phone["scrolls"]) == ([], False)
    assert phone["own"] > 0, "wide tables scroll in their own box"


@pytest.mark.parametrize("more", [{"isotropy": False}, {"snapshots": False}, {"views": ()}])
def test_a_page_without_controls_runs_without_an_error(tmp_path, more):
    page = write_report(write_run(tmp_path / "run", **{"views": ("cls",), **more}))
    assert used(page, (1280, PHONE))[1:] == ([], [])
