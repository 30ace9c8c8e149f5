"""A configuration composed, hashed, and the folder that it names."""

import pytest
from omegaconf import OmegaConf

from isotrain.config.compose import (
    compose_run,
    content_hash,
    plain,
    recorded,
    run_id,
)
from isotrain.config.schema import NOT_CONTENT

BASE = ("encoder=tiny", "source=demo", "threads=1")


@pytest.fixture(autouse=True)
def data_folder(monkeypatch):
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", "/data")


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
def test_a_location_is_reported_apart_and_named_by_its_digest(base, key, is_named):
    one, other = (compose_run([*BASE, *base, f"{key}={place}"]) for place in ("/a", "/b"))
    assert (content_hash(one) != content_hash(other)) == is_named
    first, second = run_id(recorded(one), "method"), run_id(recorded(other), "method")
    assert first.reads != second.reads
    assert first.folder("v1") == second.folder("v1") or is_named
    assert first.folder("v1") != first.folder("v2")


def test_secrets_are_not_recorded_and_references_are_resolved(monkeypatch):
    monkeypatch.setenv("A_SECRET_TOKEN", "the-secret-value")
    cfg = compose_run(
        [*BASE, "source=local", "logger=[wandb]", "logger.wandb.project=${oc.env:A_SECRET_TOKEN}"]
    )
    assert plain(cfg)["logger"]["wandb"]["project"] == "the-secret-value"
    content = recorded(cfg)
    assert content["source"]["root"] == "/data"
    assert "the-secret-value" not in str(content)
