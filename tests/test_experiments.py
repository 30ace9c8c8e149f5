"""Experiments: their studies plan, their results are whole, their pages say what the results do."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from scipy.stats import t
from torch.nn.functional import cosine_similarity

from isotrain.config.compose import recorded, run_id
from isotrain.studies.definition import load_study
from isotrain.transforms.identity import Identity
from tests.compositions import composed_once
from tests.judge import errors_of
from tests.model.test_isotropic_model import WIDTH, Shift, batch, model
from tools.experiment_picture import SPEC, draw
from tools.readme_blocks import BLOCK, PAGES, filled

FOLDER = Path(__file__).parents[1] / "experiments"
STUDIES = sorted(file.parent.name for file in FOLDER.glob("*/study.yaml"))
WITH_RESULTS = sorted(file.parent.name for file in FOLDER.glob("*/results.csv"))
SEARCHES = sorted(file.parent.name for file in FOLDER.glob("*/search.yaml"))
ALL = sorted(STUDIES + SEARCHES)
WITH_PICTURE = sorted(file.parent.name for file in FOLDER.glob("*/differences.svg"))
OWN_LAYERS = {name for name in STUDIES if (FOLDER / name / "conf").is_dir()}

SECTIONS = ["Question", "Prediction and outcome", "Result", "What it does not show", "Run it"]
STATUS = (
    *("Confirmed on fresh seeds", "Prediction held", "Prediction failed", "Repeated"),
    "Exploratory",
)
INTERVAL = re.compile(r"\[[+−][\d.]+, [+−]?[\d.]+\]")


def study_of(name):
    return load_study(str(FOLDER / name / "study.yaml"))


def opening(name):
    text = (FOLDER / name / "study.yaml").read_text("utf-8")
    return re.match(r"(#.*\n)+", text)[0]


def results(name):
    return pd.read_csv(FOLDER / name / "results.csv", keep_default_na=False, na_values=[""])


def page(name):
    return (FOLDER / name / "README.md").read_text("utf-8")


def test_there_is_enough_to_look_at():
    assert len(STUDIES) >= 27
    assert len(WITH_RESULTS) >= 24
    assert len(OWN_LAYERS) == 4


def composed_by(name, *given):
    """The configuration of each task and method, at one seed."""
    more = [*given, f"seed={study_of(name).seeds[0]}"]
    return [composed_once(*overrides, *more) for _, _, overrides in study_of(name).pairs]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STUDIES if name not in OWN_LAYERS])
def test_a_study_composes_for_a_small_encoder_and_local_data(name, data_dir):
    configs = composed_by(name, "encoder=minilm", "source=local", f"source.root={data_dir}")
    assert [error for cfg in configs for error in errors_of(cfg)] == []
    ids = {run_id(recorded(cfg), "") for cfg in configs}
    assert len(ids) == len(configs), "no two methods are the same"


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_opens_with_its_question_command_and_prediction(name):
    assert study_of(name).name == name
    for part in ("Question:", "Device:", "Expected:", "isotrain run experiments/{}/study.yaml"):
        assert part.format(name) in opening(name)
    study = study_of(name)
    assert len(study.methods) >= 2
    assert re.search(rf"\b{len(study.pairs) * len(study.seeds)} runs", opening(name))
    layers = [key for key in study.methods[study.baseline] if key.startswith("isotropy")]
    assert layers in ([], ["isotropy=none"])


@pytest.mark.parametrize("name", STUDIES)
def test_what_a_study_compares_can_be_shown_or_it_says_that_it_explores(name):
    """At Holm's first step: by the smallest p value of n flips, or below 8 by what t asks for."""
    study = study_of(name)
    n, m = len(study.seeds), len(study.methods) - 1
    in_sd = t.ppf(1 - 0.025 / m, n - 1) / n**0.5  # the least significant mean difference
    can_show = 2 ** (1 - n) * m <= 0.05 if n >= 8 else in_sd < 5
    assert can_show or "Exploratory" in opening(name)


@pytest.mark.parametrize("name", WITH_RESULTS)
def test_results_have_each_run_of_the_study_once(name):
    study, table = study_of(name), results(name)
    planned = {(t, a, s) for t in study.tasks for a in study.methods for s in study.seeds}
    found = list(table[["task", "method", "seed"]].itertuples(index=False, name=None))
    assert len(found) == len(set(found))
    assert set(found) == planned
    assert table["commit"].str.fullmatch(r"[0-9a-f]{7,}(\+\w+)?( > [0-9a-f]{7,})*").all()
    scores = [key for key in table if key.split("/")[0] in ("val", "test")]
    assert scores
    shares = [key for key in scores if key.split("/")[1] in ("accuracy", "spearman", "pearson")]
    assert table[shares].abs().max().max() <= 1
    for _, of_task in table.groupby("task"):
        held = [key for key in scores if of_task[key].notna().any()]
        assert {"val/loss"} < set(held)
        has_collapsed = of_task["collapsed"] == 1  # which may leave a correlation undefined
        assert of_task.loc[~has_collapsed, held].notna().all(axis=None)


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.parent.name)
def test_the_numbers_of_a_page_are_those_of_the_results(file):
    text = file.read_text("utf-8")
    assert filled(text, file.parent) == text
    assert len(BLOCK.findall(text)) >= 3 or file.parent.name not in WITH_RESULTS
    for line in BLOCK.sub("", text).splitlines():  # by hand: of examples, with its source
        if INTERVAL.search(line):
            assert "isotrain report" in line or ".py`" in line
    in_tables = any(INTERVAL.search(spec) for _, spec, _, _ in BLOCK.findall(text))
    assert not in_tables or "isotrain report" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_PICTURE)
def test_a_picture_is_what_its_page_says(name, tmp_path):
    spec = yaml.safe_load(SPEC.search(page(name))[1]) or {}
    draw(FOLDER / name, spec, tmp_path / "again.svg")
    files = (tmp_path / "again.svg", FOLDER / name / "differences.svg")
    drawn, shipped = (file.read_text("utf-8") for file in files)
    assert re.findall(r">([^<]+)</text>", drawn) == re.findall(r">([^<]+)</text>", shipped)
    assert drawn.count("<path") == shipped.count("<path")  # their places depend on the fonts


@pytest.mark.parametrize("name", ALL)
def test_a_page_is_short_and_says_how_to_run_it(name):
    text = page(name)
    assert len(text.splitlines()) <= 80
    shown = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    prose = [line for line in shown.splitlines() if not line.startswith("|")]
    assert len(" ".join(prose).split()) <= 700
    plan = "study" if name in STUDIES else "search"
    assert f"isotrain run experiments/{name}/{plan}.yaml" in text
    if name in WITH_RESULTS:
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
        assert re.search(rf"^\*({'|'.join(STATUS)})", text, re.MULTILINE)
        assert re.search(r"\b(hours?|minutes)\b", text)
        assert all(commit[:7] in text for commit in results(name)["commit"].unique())
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert 3 <= len(rows) <= 2 + 7  # one table: heading, rule and rows
        assert len(re.findall(r"^\| -", text, re.MULTILINE)) == 1
        assert len(re.findall(r"^!\[", text, re.MULTILINE)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "picture"),
    [
        ("where_isotropy_pays_confirmed/curve.py", "curve.png"),
        ("own_embeddings/frontier.py", "frontier.png"),
    ],
)
def test_a_picture_is_drawn_from_results_alone(script, picture, tmp_path):
    tables = shutil.ignore_patterns("*.png", "*.md")
    copied = shutil.copytree(FOLDER, tmp_path / "experiments", ignore=tables) / script
    subprocess.run([sys.executable, str(copied)], check=True, cwd=tmp_path, capture_output=True)
    assert copied.with_name(picture).stat().st_size > 10_000


@pytest.mark.parametrize("layer", [Identity(WIDTH), Shift(1.0)], ids=["none", "shift"])
def test_shares_of_the_gradient_are_those_at_the_pooled_embeddings(layer, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER / "start_loss")
    module = SimpleNamespace(model=model({"pooled": layer}), of_callbacks={})
    callback = importlib.import_module("shifts").MeanShare()
    callback.on_train_start(None, module)
    output = module.model(batch())
    output.logits.sum().backward()
    callback.on_after_backward(None, module)
    (weight_CD,) = (x for x in module.model.head.parameters() if x.ndim == 2)
    gradient_D, mean_D = weight_CD.sum(dim=0), output.site_embeddings["pooled"].before.mean(dim=0)
    along = cosine_similarity(gradient_D, mean_D, dim=0).item() ** 2
    expected = {"optim/mean_share": along, "optim/common_share": 1.0}
    assert module.of_callbacks == pytest.approx(expected, rel=1e-5)


def test_the_index_has_every_experiment():
    index = (FOLDER / "README.md").read_text("utf-8")
    assert all(f"]({name}/README.md)" in index for name in ALL)
