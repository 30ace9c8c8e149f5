"""Charts of a run by the values in them; that all charts compile; the library that draws them."""

import base64
import gzip
import math
import re

import pytest
import vl_convert

from isotrain.analysis.charts import LinePlot, draw
from isotrain.analysis.outputs import write_page
from isotrain.analysis.show import Frames
from isotrain.pages.charts import COLOURS, library, picture
from isotrain.pages.report import write_report
from isotrain.pages.run_charts import (
    DASH,
    heat_map,
    isotropy_of,
    loss_chart,
    score_chart,
    site_chart,
    spectra_chart,
)
from isotrain.pages.study_page import write_study_page
from isotrain.results.readings import label
from isotrain.results.series import End, isotropy_series
from isotrain.runs.keys import CurveKey
from tests.analysis.toy import Toy
from tests.pages.small_run import LAYERS, STEPS, VIEWS, arrays, clouds, evaluation, value, write_run
from tests.pages.small_study import curves_of, result
from tests.pages.test_report import Page

ROWS = [evaluation(step, clouds()) for step in STEPS]
ROWS.insert(1, {"step": 9, "train/loss": 0.75})
METRIC, TITLE = "isoscore_corrected", "IsoScore, bias-corrected (1 = isotropic)"
RESULT = {"headline": [METRIC, "partition"], "is_causal": False}


def short(number):
    return float(f"{number:.5g}")


def isotropy(rows, **more):
    return isotropy_of(RESULT | more, rows, isotropy_series(rows), RESULT["headline"])


def values(spec):
    return spec["data"]["values"]


def lines(spec):
    """Points of each line of a score or loss."""
    found = {}
    for row in values(spec):
        found.setdefault(row["of"], []).append((row["step"], row["value"]))
    return found


def scales(spec, channel):
    """What a scale gives each name; the same in every layer of marks that has it."""
    found = [
        one["encoding"][channel].get("scale", {})
        for one in spec["layer"]
        if channel in one["encoding"]
    ]
    (only,) = {tuple(map(str, one["range"])): one for one in found if "domain" in one}.values()
    return dict(zip(only["domain"], only["range"], strict=True))


def test_every_value_of_every_layer_is_in_the_heat_map():
    rows = [dict(row) for row in ROWS]
    del rows[-1][CurveKey(METRIC, "layer_01", "cls").text]
    rows[-1][CurveKey(METRIC, "layer_02", "cls").text] = math.nan
    found = isotropy(rows)
    assert next(iter(found.metrics)) == TITLE
    spec = heat_map(found)
    views = {
        "tokens": "tokens, N = 2,048",
        "cls": "first token (CLS), N = 640",
        "mean": "mean of tokens, N = 640",
    }
    assert (found.views, list(found.views)) == (views, list(views))
    chosen = heat_map(found, "partition", "mean")["params"]
    assert [param["value"] for param in chosen] == [label("partition"), views["mean"]]
    drawn = {(r["metric"], r["view"], r["layer"]): r for r in values(spec)}
    assert len(drawn) == len(values(spec)) == len(found.metrics) * len(views) * len(LAYERS)
    for number, layer in enumerate(LAYERS):
        for view in VIEWS:
            row = drawn[TITLE, views[view], number]
            wanted = [short(value(step, layer, view)) for step in STEPS]
            if (layer, view) == ("layer_02", "cls"):
                wanted[-1] = None  # white, with a cross
            steps = STEPS[:2] if (layer, view) == ("layer_01", "cls") else STEPS
            assert row["step"] == list(steps)
            assert row["value"] == wanted[: len(steps)]
    assert [param["value"] for param in spec["params"]] == [TITLE, views["tokens"]]
    at = spec["layer"][0]["encoding"]
    assert (at["y"]["field"], at["y"]["sort"]) == ("layer", "descending")  # layer 0 below


def test_views_name_the_embeddings_of_dev_and_those_of_training_batches():
    key = "train_isotropy/{}/layer_01/cls"
    rows = [*ROWS, {"step": 9, key.format("n_rows"): 8, key.format("mean_cosine"): 0.25}]
    found = isotropy(rows).views
    assert found["cls"] == "first token (CLS), N = 640; training batches, N = 8"
    assert found["mean"] == "mean of tokens, N = 640"


def test_sites_with_the_input_dashed_and_their_null_bands():
    spec = site_chart(isotropy(ROWS))
    sides = {"pooled, layer input": "before", "pooled, output": "after"}
    drawn = {(row["metric"], row["of"]): row for row in values(spec)}
    for name, side in sides.items():
        row = drawn[TITLE, name]
        assert row["value"] == [short(value(step, "pooled", side)) for step in STEPS]
        assert row["low"] == row["high"] == [None] * len(STEPS)  # this metric has no null
        of_null = drawn["ln I(W) (0 = isotropic)", name]
        assert (of_null["low"], of_null["high"]) == ([-0.5] * 3, [-0.25] * 3)
    dashes = scales(spec, "strokeDash")
    assert dashes == {"pooled, layer input": DASH, "pooled, output": [1, 0]}
    assert len(set(scales(spec, "color").values())) == 1  # of one site
    alone = site_chart(isotropy([evaluation(s, clouds(layer=False)) for s in STEPS]))
    assert {row["of"] for row in values(alone)} == {"pooled"}


def test_score_and_loss():
    spec = score_chart([*ROWS, {"step": 40, "test/accuracy": 0.55}], "val/accuracy", 20)
    found = lines(spec)
    assert found["dev"] == [(step, short(100 * (0.5 + step / 400))) for step in STEPS]
    assert found["test"] == [(40, 55)]
    marks = [one["encoding"] for one in spec["layer"][2:]]
    assert [one["x"]["datum"] for one in marks] == [20, 20]  # the weights that were kept
    level = score_chart(ROWS, "val/accuracy", level=("majority class", 0.5))
    assert [one["encoding"]["y"] for one in level["layer"][2:]] == [{"datum": 50}] * 2
    loss = lines(loss_chart(ROWS))
    assert (loss["training"], len(loss["dev"])) == ([(9, 0.75)], 3)
    rows = [{"step": 3, "train/loss": 2.0, "train/task_loss": 1.0, "train/simcse": 4.0}]
    assert lines(loss_chart(rows)) == {
        "training": [(3, 2)],
        "task loss": [(3, 1)],
        "simcse": [(3, 4)],
    }


def test_spectra_are_shares_of_the_variance():
    snapshots = {step: arrays(step, clouds()) for step in STEPS}
    snapshots[40]["spectrum/layer_01/tokens"][-1] = 1e-9
    snapshots[40]["spectrum/layer_00/tokens"][:] = 0  # equal embeddings have no shares
    spec = spectra_chart(snapshots, "*/tokens", End(40, False))
    drawn = {(row["layer"], row["at"]): row for row in values(spec)}
    assert set(drawn) == {
        *((layer, "step 0") for layer in "012"),
        *((layer, "step 40") for layer in "12"),
    }
    assert drawn["2", "step 0"]["rank"] == [1, 2, 3, 4]
    assert drawn["2", "step 0"]["share"] == [0.5, 0.25, 0.125, 0.125]
    assert drawn["1", "step 40"]["share"][-1] is None  # below 10⁻⁶ of the largest
    dashes = scales(spec, "strokeDash")
    assert dashes == {"step 0": DASH, "step 40": [1, 0]}
    of_site = spectra_chart(snapshots, "pooled/*", End(20, True))
    names = {(row["layer"], row["at"]) for row in values(of_site)}
    sides = ("layer input", "output")
    assert names == {(s, at) for s in sides for at in ("step 0", "kept weights (step 20)")}
    alone = spectra_chart({0: snapshots[0]}, "*/cls", End(0, False))
    assert scales(alone, "strokeDash") == {"step 0": [1, 0]}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The charts of a run, of a study and of an analysis, by the kind of page."""
    folder = tmp_path_factory.mktemp("charts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isotrain.pages.study_page.isotropy_curves", lambda *_: curves_of())
        study = write_study_page(folder / "study", result())
    many = len(COLOURS) + 1
    records = [
        {
            "kind": "k",
            "layer": layer,
            "y": 0.5,
            "y_error": 0.1,
            "null": 0.2,
            "word": f"w{k}",
            "n": 2**layer,
        }
        for k in range(many)
        for layer in range(3)
    ]
    texts = {"title": "t", "description": "d", "of": "k", "y": {"y": "name"}}
    plots = [
        LinePlot("lines", **texts, hue="word", null="null"),
        LinePlot("panels", **texts, panel="word", x="n", log=True),
    ]
    drawn = [one for plot in plots for one in draw(plot, Frames(records), None)]
    record = {"overrides": [], "config": {}}
    analysis = write_page(folder, Toy(), [], [], [*drawn, *Toy().pictures(None)], record)
    run = write_report(write_run(folder / "run"))
    found = {"run": run, "study": study, "analysis": analysis}
    return {kind: Page(page.read_text(encoding="utf-8")).charts for kind, page in found.items()}


@pytest.mark.parametrize(("kind", "n"), [("run", 9), ("study", 14), ("analysis", 11)])
def test_every_chart_compiles_without_a_warning_and_shows_marks(pages, kind, n, capfd):
    assert len(pages[kind]) == n
    for name, spec in pages[kind].items():
        vl_convert.vegalite_to_vega(spec, show_warnings=True)
        svg = picture(spec, "svg").decode()
        marks = re.findall(r'<g class="mark-[^"]*role-mark [^>]*><(?:path|text|line)', svg)
        assert marks, name
    assert "WARN" not in "".join(capfd.readouterr())


def test_the_library_is_made_once_for_a_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []
    bundle = vl_convert.javascript_bundle
    monkeypatch.setattr(
        vl_convert, "javascript_bundle", lambda text: made.append(text) or bundle(text)
    )

    def unpacked():
        library.cache_clear()
        return gzip.decompress(base64.b64decode(library())).decode()

    try:
        script = unpacked()
        (file,) = tmp_path.glob("isotrain/*.js.gz")
        whole = file.read_bytes()
        assert script == unpacked()
        assert len(made) == 1
        monkeypatch.setattr(
            vl_convert, "javascript_bundle", lambda text: made.append(text) or script
        )
        file.write_bytes(whole[:-9])
        assert unpacked() == script
        assert (len(made), file.read_bytes()) == (2, whole)
    finally:
        library.cache_clear()
    assert "vegaEmbed" in script
