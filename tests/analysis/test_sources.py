"""The table of the sources' claims, from records of analyses."""

from pathlib import Path
from runpy import run_path

import pandas as pd
import pytest
import yaml

SOURCES = Path(__file__).parents[2] / "experiments" / "sources"
table = run_path(str(SOURCES / "table.py"))


def cell(claim, *runs):
    return table["cell"](claim, runs)


def records(**columns):
    return pd.DataFrame({"kind": "layer", "weights": "as given", **columns})


def claim(column="s", **more):
    return {"claim": "a", "where": {"kind": "layer"}, "column": column, **more}


def test_a_cell_has_the_first_the_middle_and_the_last_layer():
    own = records(layer=[0, 1, 2, 3, 10, 10], s=[9.0, 0.1, -0.25, 0.3, 0.4, 0.8])
    assert cell(claim(), own) == ".1, −.25, .6"
    assert cell(claim(take="max"), own) == ".1, −.25, .8"
    assert cell(claim(at="last"), own) == ".6"
    assert cell(claim(over=None), own.iloc[1:3]) == "−.075"


def test_layers_are_numbers_where_a_record_has_a_name_in_their_place():
    own = records(layer=["1", "2", "10", "glove"], s=[1.0, 2.0, 3.0, 4.0])
    own.loc[3, "kind"] = "static"
    assert cell(claim(), own) == "1, 2, 3"
    assert cell({**claim(over=None), "where": {"kind": "static"}}, own) == "4"


def test_a_dash_is_what_the_encoder_does_not_have():
    assert cell(claim()) == "–"
    assert cell({**claim("t"), "where": {"kind": "cls"}}, records(layer=[1])) == "–"
    assert cell({**claim("t"), "where": {"word": "the"}}, records(layer=[1])) == "–"
    assert cell(claim(), records(layer=[0], s=[1.0])) == "–"
    with pytest.raises(KeyError, match="t"):
        cell(claim("t"), records(layer=[1]))


def test_runs_may_share_a_figure_but_not_differ_in_it():
    one = records(layer=[1], s=[1.0])
    assert cell(claim(), one, one, records(layer=[1], t=[1.0]).assign(kind="cls")) == "1"
    with pytest.raises(ValueError, match=r"runs of one encoder have 1 \| 2"):
        cell(claim(), one, records(layer=[1], s=[2.0]))


def test_what_a_run_has_changed_does_not_count(tmp_path):
    own = records(layer=[1, 1], s=[1.0, 3.0]).assign(weights=["before", "after"])
    for run in ("tiny-0a", "other_one-0a"):
        (tmp_path / "tails" / run).mkdir(parents=True)
        own.to_csv(tmp_path / "tails" / run / "records.csv", index=False)
    claims = [{"source": "b", "analysis": "tails", **claim()}]
    found = table["figures"](claims, tmp_path)
    assert found.to_dict("records") == [
        {"source": "b", "claim": "a", "other_one": "1", "tiny": "1"}
    ]
    lines = table["rendered"](claims, found).splitlines()
    assert lines[-1] == "| a | – | 1 | 1 | – | `tails` |"
    with pytest.raises(ValueError, match="is of other claims"):
        table["rendered"]([{**claims[0], "claim": "c"}], found)


def test_saved_figures_stay_where_a_folder_has_none():
    new = pd.DataFrame({"source": "b", "claim": ["z", "a"], "tiny": ["–", "2"]})
    old = pd.DataFrame(
        {
            "source": "b",
            "claim": ["a", "gone", "z"],
            "tiny": ["1", "5", "3"],
            "other": ["4", "6", "–"],
        }
    )
    assert table["merged"](new, old).to_dict("records") == [
        {"source": "b", "claim": "z", "tiny": "3", "other": "–"},
        {"source": "b", "claim": "a", "tiny": "2", "other": "4"},
    ]


def test_own_figures_stand_beside_saved_ones_that_differ():
    own = pd.DataFrame({"source": "b", "claim": ["y", "z", "a"], "tiny": ["–", "3", "2"]})
    old = pd.DataFrame({"source": "b", "claim": ["a", "z"], "tiny": ["1", "3"]})
    found = table["compared"](own, old)
    assert found["tiny"].to_dict() == {1: "3", 2: "2 (saved: 1)"}


def test_the_page_has_the_tables_of_its_figures():
    claims = yaml.safe_load((SOURCES / "claims.yaml").read_text("utf-8"))
    assert len({(one["source"], one["claim"]) for one in claims}) == len(claims)
    figures = pd.read_csv(SOURCES / "figures.csv", dtype=str)
    assert table["rendered"](claims, figures) in (SOURCES / "README.md").read_text("utf-8")


def test_the_page_by_layer_has_the_tables_of_its_figures():
    by_layer = run_path(str(SOURCES / "by_layer.py"))
    found = by_layer["on_page"](pd.read_csv(SOURCES / "sts_by_layer.csv"))
    assert found in (SOURCES / "sts_by_layer.md").read_text("utf-8")
    assert found.count("**") == 2 * 3


def test_figures_by_layer_are_of_the_sets_and_splits_of_their_runs(tmp_path):
    by_layer = run_path(str(SOURCES / "by_layer.py"))
    whole = {"set": "stsb", "split": "test", "layer": 3, "weights": "as given"}
    pca, gained = "kmeans_mean_pca", {"spearman": 52.0, "spearman_gain": 2.0}
    rows = [
        {**whole, "kind": "cloud", "setting": "none", "mean_cosine": 0.5, "ln_partition": -2.0},
        {**whole, "kind": "cloud", "setting": pca, "mean_cosine": 0.0, "ln_partition": -1.0},
        {**whole, "kind": "similarity", "setting": "none", "spearman": 50.0, "spearman_gain": 0.0},
        {**whole, "kind": "similarity", "setting": pca, **gained},
        {**whole, "kind": "similarity", "setting": pca, "set": "sts12", "spearman": 9.0},
        {**whole, "kind": "similarity", "setting": pca, "weights": "after", "spearman": 9.0},
    ]

    def write(name, split, layer=3):
        own = pd.DataFrame(rows).assign(spearman_gain_error=0.5, layer=layer)
        own.loc[own["setting"] == pca, "fitted_on"] = f"stsb {split}"
        folder = tmp_path / "offline_isotropy" / f"all_mpnet_base_v2-{name}"
        folder.mkdir(parents=True)
        own.to_csv(folder / "records.csv", index=False)

    for name, split in (("0a", "train"), ("0b", "test")):
        write(name, split)
    found = by_layer["read"](tmp_path)
    assert found[by_layer["KEYS"]].values.tolist() == [
        ["MPNet", split, 3, setting] for split in ("test", "train") for setting in ("none", pca)
    ]
    values = found[by_layer["FIGURES"]].values.tolist()
    assert values == [[50, 0, 0.98, 0.5, -2], [52, 2, 0.98, 0, -1]] * 2
    row = "| 3 | 0.50 | 50.0 | 52.0 | +2.0 ± 1.0 | +2.0 ± 1.0 |"
    assert by_layer["rendered"](found).splitlines()[-1] == row
    one_more = found.iloc[:2].assign(layer=4)
    rendered = by_layer["rendered"](pd.concat([found, one_more]))
    assert rendered.splitlines()[-1] == "| 4 | 0.50 | 50.0 | 52.0 | +2.0 ± 1.0 | – |"
    saved = pd.concat([found.assign(encoder="MiniLM"), found.iloc[:2].assign(spearman=1.0)])
    both = by_layer["merged"](found, saved)
    assert both["encoder"].tolist() == ["MiniLM"] * 4 + ["MPNet"] * 4
    assert both["spearman"].tolist() == [50.0, 52.0] * 4
    write("0c", "test", layer=4)
    with pytest.raises(ValueError, match="two runs of MPNet are fitted on test; move one"):
        by_layer["read"](tmp_path)
