"""Arms from a grid: their names, their overrides as Hydra reads them, and what is refused."""

from __future__ import annotations

import re

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.studies.definition import NAME, load_study
from isotrain.studies.grid import grid_arms, grid_mistakes
from isotrain.studies.plan import plan_jobs

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.floats(-1e6, 1e6)
    | st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=8).filter(
        lambda text: "$" not in text and "\\" not in text
    )
)


def test_the_product_with_the_last_key_changing_first():
    arms = grid_arms(
        {
            "isotropy": ["cluster_pca"],
            "site": [["pooled"], ["tokens", "layer_3"]],
            "isotropy.removal.strength": [0.5, 1.0],
        }
    )
    assert [name for name, _ in arms] == [
        "cluster_pca_pooled_strength_0.5",
        "cluster_pca_pooled_strength_1.0",
        "cluster_pca_tokens_layer_3_strength_0.5",
        "cluster_pca_tokens_layer_3_strength_1.0",
    ]
    assert arms[2][1] == (
        "isotropy=cluster_pca",
        "site=[tokens,layer_3]",
        "isotropy.removal.strength=0.5",
    )


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("objective.istar.weight", -1.0, "weight_minus_1.0"),
        ("optimizer.lr", 2e-5, "lr_2e_05"),
        ("sync", False, "sync_false"),
        ("isotropy.queue_rows", None, "queue_rows_null"),
        ("+isotropy.assign.softness", 1, "softness_1"),
        ("objective", [], "objective_none"),
        ("encoder.name", "a/b-c", "name_a_b_c"),
        ("rows", "no_special", "no_special"),
        ("hydra/help", "default", "default"),
    ],
)
def test_names(key, value, name):
    assert grid_mistakes({key: [value]}) == []
    assert [own for own, _ in grid_arms({key: [value]})] == [name]


@settings(max_examples=60)
@given(PLAIN | st.lists(PLAIN, max_size=3))
def test_hydra_reads_the_value_that_the_grid_has(value):
    ((name, (override,)),) = grid_arms({"a.b": [value]})
    assert re.fullmatch(NAME, name)
    read = OverridesParser.create().parse_override(override).value()

    def bare(item):  # a quoted text comes as an object of the parser
        return item.text if hasattr(item, "text") else item

    found = [bare(item) for item in read] if isinstance(read, list) else bare(read)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ([], "grid must map keys to lists"),
        ({}, "grid must map keys to lists"),
        ({"a b": [1]}, "grid has the key 'a b'"),
        ({3: [1]}, "grid has the key 3"),
        ({"rows": "all"}, "grid.rows must be a list of values such as [1, 2], got 'all'"),
        ({"rows": []}, "grid.rows must be a list"),
        ({"seed": [0, 1]}, "grid.seed is what seeds says"),
        ({"isotropy": [{"a": 1}]}, "grid.isotropy has {'a': 1}; a value is"),
        ({"site": [[["tokens"]]]}, "grid.site has [['tokens']]; a value is"),
        ({"x.y": [1, 1]}, "grid makes 2 arms with the name y_1; give a value once"),
        ({"x.y": ["a/b", "a-b"]}, "grid makes 2 arms with the name y_a_b"),
    ],
)
def test_mistakes(grid, said):
    assert len(found := grid_mistakes(grid)) == 1
    assert said in found[0]


def test_a_study_with_a_grid_is_planned(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text(
        "overrides: [encoder=tiny, source=demo]\n"
        "tasks: {rte: [task=rte]}\n"
        "arms: {none: [isotropy=none]}\n"
        "grid:\n"
        "  isotropy: [cluster_pca]\n"
        "  site: [[pooled], [layer_1]]\n"
        "  isotropy.removal.strength: [0.5, 1.0]\n"
        "baseline: none\nseeds: [0]\n"
    )
    study = load_study(str(file))
    assert list(study.arms)[:2] == ["none", "cluster_pca_pooled_strength_0.5"]

    def strength(layer):
        return layer.removal.strength if "removal" in layer else None

    found = {(tuple(job.cfg.site), strength(job.cfg.isotropy)) for job in plan_jobs(study)}
    expected = {(("pooled",), None)}
    expected |= {((s,), k) for s in ("pooled", "layer_1") for k in (0.5, 1.0)}
    assert found == expected
