"""The name that a part was chosen by, for every way to compose a run, and what it cites."""

import shutil

import pytest
from omegaconf import OmegaConf

from isotrain.config.compose import compose_run, content_hash, plain, recorded
from isotrain.config.names import method_name, part_name, sources
from isotrain.config.shipped import conf_folder, names
from isotrain.export.card import citations
from tests.judge import judged


@pytest.fixture
def own_folder(tmp_path):
    """A --config-dir with copies of shipped files, and an experiment that chooses one."""
    for group, name, copy in (("isotropy", "clip", "mine"), ("isotropy", "cluster_pca", "usual")):
        (tmp_path / group).mkdir(exist_ok=True)
        shutil.copy(f"{conf_folder()}/{group}/{name}.yaml", tmp_path / group / f"{copy}.yaml")
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\ndefaults: [{override /isotropy: mean}]\nseed: 3\n"
    (tmp_path / "experiment" / "centred.yaml").write_text(text)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("overrides", "name", "cited"),
    [
        (["isotropy=clip"], "clip", []),
        (["isotropy=anti_clip"], "anti_clip", []),
        (["isotropy=mean"], "mean", ["mean: Mu & Viswanath 2018"]),
        (["isotropy=cluster_pca"], "cluster_pca", ["cluster_pca: Rajaee & Pilehvar 2021"]),
        (["isotropy=published"], "published", ["published: Rajaee & Pilehvar 2021"]),
        (["isotropy=frozen_zca"], "frozen_zca", ["frozen_zca: Diera et al. 2024"]),
        (
            ["isotropy=mean", "isotropy.queue_rows=64", "optimizer=muon", "optimizer.lr=0.1"],
            "mean",
            ["mean with changed keys: Mu & Viswanath 2018", "muon: Jordan et al. 2024"],
        ),
        (["isotropy=mine"], "mine", []),
        (["isotropy=mine", "isotropy.n_components=7"], "mine", []),
        (["isotropy=usual"], "usual", []),
        (["experiment=centred"], "mean", ["mean: Mu & Viswanath 2018"]),
    ],
)
def test_a_part_goes_by_the_file_that_was_chosen(own_folder, overrides, name, cited):
    cfg, errors = judged(["task=wic", *overrides], own_folder)
    assert not errors
    config = recorded(cfg)
    assert part_name(config, "isotropy") == name
    assert sources(config) == cited
    papers = " ".join(citations(config, "bert", ()))
    assert ("rajaee" in papers) == any("Rajaee" in text for text in cited)


def test_names_are_known_from_python():
    assert compose_run(["isotropy=clip", "peft=lora"]).names == {
        **{"isotropy": "clip", "peft": "lora", "freezing": "none", "optimizer": "adamw"}
    }


@pytest.mark.parametrize("name", names("isotropy"))
def test_a_shipped_file_is_found_unchanged_under_any_name(name):
    config = plain(compose_run([f"isotropy={name}"]))
    assert method_name(config, "isotropy") == (name, False)


def test_a_name_changes_no_hash_and_old_records_go_by_class():
    cfg = compose_run(["isotropy=clip"])
    other = OmegaConf.merge(cfg, {"names": {"isotropy": "mine"}})
    assert content_hash(cfg) == content_hash(other)
    config = plain(cfg)
    del config["names"]
    assert part_name(config, "isotropy") == "clip"
    assert sources(config) == []
