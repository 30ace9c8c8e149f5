"""The page of a study in a browser: from a file, without network, with working controls."""

import pytest

from isotrain.pages.study_page import write_study_page
from tests.pages.small_run import HOSTILE
from tests.pages.small_study import EFFECT, TASKS, curves_of, result, runs_of, study_of
from tests.pages.test_browser import CHROMIUM, used

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")

# Uses the page as a reader does, and leaves what it saw as JSON.
AFTER = """<pre id="seen"></pre><script>
const all = (selector) => [...document.querySelectorAll(selector)];
const choose = (list, value) => {
  list.value = value;
  list.dispatchEvent(new Event("input", { bubbles: true }));
};
function use() {
  const seen = {};
  const methods = all("[data-highlights=method]");
  seen.methods = [...methods[0].options].map((option) => option.textContent);
  choose(methods[1], "2");
  seen.together = methods.map((list) => list.value);
  seen.chosen = [...new Set(all("svg .method.chosen").map((line) => line.dataset.method))];
  seen.panels = all(".panel svg").filter((panel) => panel.querySelector(".method")).length;
  seen.withChosen = all(".panel svg").filter((p) => p.querySelector(".method.chosen")).length;
  seen.dimmed = all("svg .method.dim").length;
  seen.lines = all("svg .method").length;
  document.getAnimations().forEach((fading) => fading.finish());
  seen.faint = Number(getComputedStyle(document.querySelector("svg .dim")).opacity);
  choose(methods[0], "-1");
  seen.dimmedAfter = all(".dim").length;

  const list = document.querySelector("[data-shows]"), parts = all("[data-part]");
  seen.options = list.options.length;
  seen.parts = parts.length;
  const shown = () => parts.map((part) => part.offsetHeight > 0);
  seen.first = shown();
  list.selectedIndex = 3;
  list.dispatchEvent(new Event("input"));
  seen.fourth = shown();

  document.body.style.width = "390px";
  document.body.style.margin = "0";
  const wide = all("body *").filter((part) =>
    !part.closest(".scroll, svg, pre, option") && part.getBoundingClientRect().right > 391);
  seen.wide = wide.map((part) => part.outerHTML.slice(0, 80));
  seen.small = all(".panel svg text").filter((text) =>
    text.getBoundingClientRect().height && text.getBoundingClientRect().height < 8).length;
  all("details").forEach((part) => { part.open = true; });
  seen.headLines = Math.max(...all(".compact thead th").map((cell) => {
    const style = getComputedStyle(cell);
    return (cell.firstChild ? cell.scrollHeight : 0) / parseFloat(style.lineHeight);
  }));
  seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
  seen.images = all("img").length;
  seen.faults = faults;
  return seen;
}
let account;
try { account = use(); } catch (error) { account = { crash: String(error) }; }
document.getElementById("seen").textContent = JSON.stringify(account);
</script>"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    one = {"wic": TASKS["wic"]}
    curves = curves_of(one, steps=(0, 170))
    given = result(runs_of(one), study_of(one), question=HOSTILE, changes=("long" * 40,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isotrain.pages.study_page.isotropy_curves", lambda *_: curves)
        return used(write_study_page(folder / "study", given), AFTER)


def test_it_loads_without_an_error_and_without_a_request(seen):
    assert seen.get("crash") is None
    assert (seen["faults"], seen["requests"], seen["images"]) == ([], [], 0)


def test_a_method_stands_out_in_every_panel_by_any_of_the_lists(seen):
    assert seen["methods"] == ["all", *EFFECT]
    assert set(seen["together"]) == {"2"}
    assert len(seen["together"]) == 4  # differences, scatter, layers, training
    assert seen["chosen"] == ["2"]
    assert seen["panels"] == seen["withChosen"] > 20
    assert 0 < seen["dimmed"] < seen["lines"]
    assert seen["faint"] < 1
    assert seen["dimmedAfter"] == 0


def test_the_place_of_isotropy_is_chosen(seen):
    assert seen["options"] == seen["parts"] == 8  # two metrics at two views and both sides
    assert seen["first"] == [place == 0 for place in range(8)]
    assert seen["fourth"] == [place == 3 for place in range(8)]


def test_a_phone_shows_it_all(seen):
    assert seen["wide"] == []
    assert seen["small"] == 0
