"""Rules of every configuration, whatever its root."""

from omegaconf import OmegaConf

from isotrain.config.check import (
    mistakes_in,
    resolved,
    target_mistakes,
)
from isotrain.config.compose import compose_run


def test_content_is_plain_and_what_cannot_be_resolved_is_named(monkeypatch):
    for name in ("ISOTRAIN_DATA_DIR", "NOT_SET"):
        monkeypatch.delenv(name, raising=False)
    cfg = OmegaConf.create(
        {
            "fine": {"x": "${number}"},
            "number": 3,
            "root": {"path": "${oc.env:ISOTRAIN_DATA_DIR}"},
            "name": "${oc.env:NOT_SET}",
            "nowhere": "${no_such_key}",
        }
    )
    content, mistakes = resolved(cfg)
    assert content["fine"] == {"x": 3}
    assert content["root"] == {"path": "${oc.env:ISOTRAIN_DATA_DIR}"}
    assert len(mistakes) == 3
    assert mistakes[0].startswith("source=local reads the folder that ISOTRAIN_DATA_DIR names")
    assert mistakes[1] == "name reads the environment variable NOT_SET; set it"
    assert "no_such_key" in mistakes[2]
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", "/data")
    assert resolved(cfg)[0]["root"] == {"path": "/data"}


def test_a_part_of_another_group_is_refused_with_the_modules_of_this_one():
    (told,) = target_mistakes({"isotropy": {"_target_": "isotrain.metrics.lid.lid_estimate"}})
    assert told.startswith(
        "isotropy._target_=isotrain.metrics.lid.lid_estimate is not allowed: isotropy must be "
        "isotrain.transforms.<module>.<name>, or of a package of yours that ISOTRAIN_ALLOW="
    )


def test_a_part_within_a_part_has_a_target():
    override = "isotropy.removal={_target_:null}"
    (told,) = mistakes_in(compose_run(["encoder=tiny", "isotropy=cluster_pca", override]))
    assert told.startswith("isotropy.removal._target_=None is not allowed")
