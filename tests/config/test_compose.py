"""A configuration composed, made plain, named, and written for a process of its own."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from isotrain.config.compose import (
    RunJob,
    compose_run,
    content_hash,
    plain,
    read_job,
    recorded,
    run_folder,
    run_id,
    write_job,
)
from isotrain.config.schema import NOT_CONTENT, TokenRows

BASE = ("encoder=tiny", "source=demo", "threads=1")
RUNS = [
    (),
    ("seed=7", "rows=no_special", "site=[tokens,layer_1]", "data.batching=random"),
    ("task=rte", "isotropy=published", "objective=[cosreg]", "metric=[partition]"),
    ("experiment=demo", "logger=[wandb,tensorboard]", "threads=null", "cache_dir=null"),
    ("source=local", "encoder=huggingface", "encoder.name=some/encoder", "pooling=spans"),
    ("+trainer.profiler=simple", "~optimizer.fused", "monitor.headline=[isoscore]"),
    ("output_dir='a b/ü'", "optimizer.lr=1e-08"),
]


@pytest.fixture(autouse=True)
def data_folder(monkeypatch):
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", "/data")


def with_job(tmp_path, *overrides, method="some-method"):
    cfg = compose_run([*BASE, *overrides])
    path = tmp_path / "job.json"
    write_job(RunJob(cfg, method, overrides), path)
    return cfg, path


@pytest.mark.parametrize("overrides", RUNS)
def test_a_job_file_is_the_same_run_of_the_same_types(tmp_path, overrides):
    cfg, path = with_job(tmp_path, *overrides)
    found, method, known, search, _ = read_job(path)
    assert (method, search) == ("some-method", "")
    assert list(known) == list(overrides)
    assert plain(found) == plain(cfg)
    assert list(plain(found)) == list(plain(cfg))  # and in order: the report shows it
    assert content_hash(found) == content_hash(cfg)
    if cfg.threads is not None:
        assert run_folder(found, "") == run_folder(cfg, "")
    assert type(found.rows) is TokenRows
    assert OmegaConf.get_type(found) is OmegaConf.get_type(cfg)
    for key, wrong in (("seed", "x"), ("rows", "x"), ("data.batching", "x"), ("site", 3)):
        with pytest.raises(OmegaConfBaseException):
            OmegaConf.update(found, key, wrong)
    with pytest.raises(OmegaConfBaseException):
        OmegaConf.update(found, "sede", 1)


def test_references_stay_references_and_no_secret_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("A_SECRET_TOKEN", "the-secret-value")
    cfg, path = with_job(
        tmp_path,
        *("source=local", "logger=[wandb]", "logger.wandb.project=${oc.env:A_SECRET_TOKEN}"),
        *("encoder=huggingface", "encoder.name='org/${oc.env:A_SECRET_TOKEN}'", "isotropy=mean"),
    )
    text = path.read_text(encoding="utf-8")
    assert "the-secret-value" in json.dumps(plain(cfg))
    assert "the-secret-value" not in text
    assert "/data" not in text
    keys = json.loads(text)["config"]
    assert keys["source"]["root"] == "${oc.env:ISOTRAIN_DATA_DIR}"
    assert keys["cache_dir"] == "${output_dir}/.cache"
    assert keys["isotropy"]["seed"] == "${seed}"
    monkeypatch.setenv("A_SECRET_TOKEN", "another-value")
    found = read_job(path).cfg
    assert found.encoder.name == "org/another-value"


@given(st.text(max_size=20))
@settings(max_examples=30)
def test_any_text_goes_through_a_job_file(tmp_path_factory, text):
    if "${" in text:
        return
    cfg = COMPOSED.copy()
    cfg.output_dir = text
    path = tmp_path_factory.mktemp("job") / "job.json"
    try:
        write_job(RunJob(cfg, "a", search=text), path)
    except UnicodeEncodeError:  # a lone surrogate is no text
        return
    found, _, _, search, _ = read_job(path)
    assert (found.output_dir, search) == (text, text)
    assert plain(found) == plain(cfg)


@pytest.mark.parametrize("method", ["../elsewhere", "a/b", "..", ".", "", "a b", "a\n", 1, None])
def test_a_job_names_a_folder_of_its_own(tmp_path, method):
    path = with_job(tmp_path)[1]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"method": method}))
    with pytest.raises(
        ValueError, match=r"neither the job of a study .*method (names a folder|must be)"
    ):
        read_job(path)


COMPOSED = compose_run(BASE)


def test_every_key_changes_the_hash_but_those_of_logging_and_place():
    """Each leaf in turn; a leaf is left out of the hash exactly where the schema says so."""
    cfg = compose_run([*BASE, "objective=[cosreg]", "isotropy=cluster_pca"])
    start, content = content_hash(cfg), plain(cfg)

    def leaves(node, path=()):
        for key, value in node.items():
            if isinstance(value, dict) and value:
                yield from leaves(value, (*path, key))
            else:
                yield (*path, key), value

    n_checked = 0
    other = OmegaConf.create(content)
    for path, value in leaves(content):
        name = ".".join(path)
        changed = [*value, "x"] if isinstance(value, list) else f"{value}-changed"
        OmegaConf.update(other, name, changed, force_add=True)
        is_named = not any(f"{name}.".startswith(f"{k}.") for k in NOT_CONTENT)
        assert (content_hash(other) != start) == is_named, name
        OmegaConf.update(other, name, value, force_add=True)
        n_checked += 1
    assert n_checked > 50
    assert content_hash(other) == start


@pytest.mark.parametrize(
    ("base", "key", "is_named"),
    [
        (["source=local"], "source.root", False),
        (["source=local", "source._target_=mine.Source"], "source.root", True),
        (["encoder=huggingface"], "encoder.name", False),
        ([], "init_from", False),
    ],
)
def test_a_location_is_told_apart_and_named_by_its_digest(base, key, is_named):
    one, other = (compose_run([*BASE, *base, f"{key}={place}"]) for place in ("/a", "/b"))
    assert (content_hash(one) != content_hash(other)) == is_named
    first, second = run_id(recorded(one), "method"), run_id(recorded(other), "method")
    assert first.reads != second.reads
    assert first.folder("v1") == second.folder("v1") or is_named
    assert first.folder("v1") != first.folder("v2")


@pytest.mark.parametrize(("task", "name"), [("wic", "wic"), ("rte", "rte"), ("stsb", "stsb")])
def test_the_folder_of_a_run_is_named_by_task_method_and_hash(task, name):
    cfg = compose_run([*BASE, f"task={task}", "output_dir=/place/of mine", "method=an_method"])
    folder = run_folder(cfg, "v1")
    assert re.fullmatch(f"/place/of mine/{name}/an_method-[0-9a-f]{{10}}", folder.as_posix())
    assert not folder.exists()


@pytest.mark.parametrize(
    "content",
    [None, "", "no json", "[]", "{}", '{"method": "a"}']
    + [
        json.dumps({"method": "a", "config": {"seed": 0}} | wrong)
        for wrong in ({"overrides": 2.5}, {"overrides": [1]}, {"search": [1]}, {"planned_data": 1})
    ],
)
def test_what_is_no_job_is_told(tmp_path, content):
    path = tmp_path / "job.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=r"job\.json is damaged .*neither the job of a study"):
        read_job(path)


def test_the_record_of_a_run_is_a_job(tmp_path):
    """`isotrain run result.json` repeats it; older records do not know their overrides."""
    cfg = compose_run(BASE)
    record = {"method": "none", "config": plain(cfg), "status": "finished"}
    (tmp_path / "result.json").write_text(json.dumps(record))
    found, method, known, *_ = read_job(tmp_path / "result.json")
    assert (plain(found), method, list(known)) == (plain(cfg), "none", [])
