"""The page of a run in a browser: from a file, without network, with working controls."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from isotrain.pages.report import write_report
from tests.pages.small_run import HOSTILE, LAYERS, write_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")

BEFORE = """<script>
window.faults = [];
addEventListener("error", (event) => faults.push(event.message));
</script>"""

# Uses the page as a reader does, and leaves what it saw as JSON.
AFTER = """<pre id="seen"></pre><script>
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const get = (id) => document.getElementById(id);
const set = (id, value, kind) => { get(id).value = value; get(id).dispatchEvent(new Event(kind)); };
const picture = () => get("map").toDataURL();
const count = (selector) => document.querySelectorAll(selector).length;
async function use() {
  const seen = {};
  document.querySelector('a[href="#values"]').click();
  seen.opened = get("values").open;
  seen.metrics = [...get("metric").options].length;
  const heat = () => get("heat").innerHTML + get("sites").innerHTML;
  const drawn = heat();
  seen.cells = count("#heat rect title");
  seen.cell = document.querySelector("#heat title").textContent;
  set("metric", 1, "input");
  seen.otherMetric = heat() !== drawn;
  set("metric", 0, "input");
  seen.sameAgain = heat() === drawn;
  set("view", "first token (CLS)", "input");
  seen.otherView = heat() !== drawn;
  seen.screen = [...document.querySelectorAll(".verdict, .halves .panel")].map(
    (part) => part.getBoundingClientRect().bottom + scrollY);
  document.querySelectorAll("details").forEach((part) => { part.open = true; });

  set("layer", 1, "input");
  seen.dimmed = count("svg .layer.dim");
  seen.chosen = [...document.querySelectorAll("svg .layer.chosen")].map((x) => x.dataset.layer);
  document.getAnimations().forEach((fading) => fading.finish());
  seen.faint = Number(getComputedStyle(document.querySelector("svg .dim")).opacity);
  seen.named = get("layer-name").textContent;
  set("layer", -1, "input");
  seen.dimmedAfter = count(".dim");

  seen.state = get("map-state").textContent;
  const last = picture();
  set("step", 0, "input");
  seen.stateFirst = get("map-state").textContent;
  const first = picture();
  seen.stepChanges = last !== first;
  const scaled = (step) => { set("step", step, "input"); return picture(); };
  const same = [0, 1, 2].map(scaled);
  get("fit").click();
  const own = [0, 1, 2].map(scaled);
  get("fit").click();
  seen.fitted = own.filter((image, step) => image !== same[step]).length;
  seen.fitBack = scaled(0) === first;
  set("colour", "nothing", "change");
  seen.colourChanges = picture() !== first;
  set("cloud", "layer_02/tokens", "change");
  seen.colours = [...get("colour").options].map((option) => option.value);
  const pictures = seen.colours.map((name) => { set("colour", name, "change"); return picture(); });
  seen.pictures = new Set(pictures).size;
  set("colour", "frequency", "change");
  seen.legend = get("map-legend").textContent;
  const box = get("map").getBoundingClientRect();
  const texts = new Set();
  const press = (key) => {
    const event = new KeyboardEvent("keydown", { key, cancelable: true });
    get("map").dispatchEvent(event);
    return [get("map-point").textContent, event.defaultPrevented, picture()];
  };
  seen.untouched = get("map-point").textContent;
  const plain = picture();
  const walked = ["Tab", "ArrowLeft", "ArrowRight", "ArrowDown", "ArrowUp"].map(press);
  seen.walked = walked.map(([text, taken, image]) => [text, taken, image !== plain]);
  seen.marks = new Set(walked.map((one) => one[2])).size;
  const tokens = JSON.parse(get("data").textContent).maps.groups.tokens;
  seen.rows = [11, 0, 1].map((row) =>
    `token “${tokens.token[row]}” · example ${tokens.index[row]} · `
    + `${["different", "same"][tokens.label[row]]} · occurs ${tokens.frequency[row]} times`);
  set("cloud", "layer_01/tokens", "change");
  seen.forgotten = get("map-point").textContent;
  set("cloud", "layer_02/tokens", "change");
  set("colour", "frequency", "change");
  for (let x = 4; x < box.width; x += 9)
    for (let y = 4; y < box.height; y += 9) {
      const at = { clientX: box.left + x, clientY: box.top + y };
      get("map").dispatchEvent(new PointerEvent("pointermove", at));
      texts.add(get("map-point").textContent);
    }
  seen.message = [...texts];

  get("play").click();
  seen.playing = get("play").textContent;
  await wait(800);
  seen.afterOne = get("step").value;
  await wait(1500);
  seen.afterAll = [get("step").value, get("play").textContent];

  document.querySelectorAll("details").forEach((part) => { part.open = false; });
  seen.folded = count("details:not([open])");
  dispatchEvent(new Event("beforeprint"));
  seen.foldedInPrint = count("details:not([open])");
  dispatchEvent(new Event("afterprint"));
  seen.foldedAgain = count("details:not([open])");

  document.body.style.width = "375px";
  document.body.style.margin = "0";
  dispatchEvent(new Event("resize"));
  await wait(50);
  const wide = [...document.querySelectorAll("main *")].filter((part) =>
    !part.closest(".scroll, svg, pre") && part.getBoundingClientRect().right > 376);
  seen.scrolls = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  seen.wide = wide.map((part) => part.outerHTML.slice(0, 80));
  seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
  seen.images = count("img");
  seen.faults = faults;
  return seen;
}
use().catch((error) => ({ crash: String(error) })).then((seen) => {
  get("seen").textContent = JSON.stringify(seen);
});
</script>"""


def opened(page, tmp_path):
    """The page's own account after it was used, and what the browser said."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000"]
    options += [f"--user-data-dir={tmp_path}/profile", "--enable-logging=stderr", "--dump-dom"]
    options += ["--disable-background-networking", "--window-size=1280,800"]
    done = subprocess.run(
        [CHROMIUM, *options, page.as_uri()], capture_output=True, text=True, timeout=100
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def used(page, script):
    """What a reader sees who uses a page as the script does."""
    text = page.read_text(encoding="utf-8")
    copy = page.with_name("used.html")
    text = text.replace("<head>", "<head>" + BEFORE).replace("</body>", script + "</body>")
    copy.write_text(text, encoding="utf-8")
    dom, said = opened(copy, page.parent)
    assert said == []
    (account,) = re.findall(r'<pre id="seen">(.*?)</pre>', dom, flags=re.DOTALL)
    return json.loads(unescape(account))


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    return used(write_report(write_run(tmp_path_factory.mktemp("browser") / "run")), AFTER)


def test_it_loads_without_an_error_and_without_a_request(seen):
    assert seen.get("crash") is None
    assert seen["faults"] == []
    assert seen["requests"] == []
    assert seen["images"] == 0  # a hostile token made none


def test_the_first_screen_holds_the_answers_and_the_drawings(seen):
    assert max(seen["screen"]) <= 800


def test_the_heat_map_changes_with_metric_and_view(seen):
    assert seen["metrics"] >= 5
    assert seen["cells"] == len(LAYERS) * 3
    assert seen["cell"].startswith("layer 0, step 0: 0.")
    assert (seen["otherMetric"], seen["sameAgain"], seen["otherView"]) == (True, True, True)


def test_a_link_opens_its_section(seen):
    assert seen["opened"]


def test_the_slider_highlights_one_layer_in_every_panel(seen):
    assert set(seen["chosen"]) == {"1"}
    assert len(seen["chosen"]) == 6  # first and last step of three spectra
    assert seen["dimmed"] == len(seen["chosen"]) * (len(LAYERS) - 1)
    assert seen["named"] == "1"
    assert seen["faint"] < 1
    assert seen["dimmedAfter"] == 0


def test_the_map_changes_with_step_scale_colour_and_cloud(seen):
    assert seen["state"].startswith("Step 40 · 12 of 640 embeddings")
    assert seen["stateFirst"].startswith("Step 0")
    assert seen["stepChanges"]
    assert seen["colourChanges"]
    assert (seen["fitted"], seen["fitBack"]) == (2, True)  # the widest step stays as it was
    assert seen["colours"] == ["label", "cluster", "frequency", "nothing"]
    assert seen["pictures"] == 4
    assert "occurs 900 times" in seen["legend"]


def test_a_row_is_named_when_pointed_at(seen):
    assert any(
        f"token “{HOSTILE}”" in text and "occurs 1 times" in text for text in seen["message"]
    )
    assert any(text.startswith("Point at an embedding") for text in seen["message"])


def test_arrow_keys_go_through_the_rows(seen):
    assert seen["untouched"].startswith(
        "Point at an embedding, or go through them with the arrow keys"
    )
    last, first, second = seen["rows"]
    texts, taken, marked = zip(*seen["walked"], strict=True)
    assert texts == (seen["untouched"], last, first, second, first)
    assert taken == marked == (False, True, True, True, True)
    assert seen["marks"] == 4  # none, and a ring around each of three rows
    assert seen["forgotten"] == seen["untouched"]


def test_it_plays_to_the_end_and_stops(seen):
    assert (seen["playing"], seen["afterOne"]) == ("Stop", "1")
    assert seen["afterAll"] == ["2", "Play"]


def test_everything_is_open_in_print(seen):
    assert seen["folded"] > 0
    assert (seen["foldedInPrint"], seen["foldedAgain"]) == (0, seen["folded"])


def test_nothing_is_wider_than_a_phone(seen):
    assert seen["wide"] == []
    assert not seen["scrolls"]


@pytest.mark.parametrize("more", [{"isotropy": False}, {"snapshots": False}])
def test_a_page_without_controls_runs_without_an_error(tmp_path, more):
    page = write_report(write_run(tmp_path / "run", views=("cls",), **more))
    _, said = opened(page, tmp_path)
    assert said == []
