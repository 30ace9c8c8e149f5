"""The check of keys and arguments, against the bounds and signatures it reads."""

import pytest
from omegaconf import OmegaConf, open_dict

from isotrain.config.check import check
from isotrain.config.compose import compose_run, plain
from tests.compositions import composed_once
from tests.judge import errors_of

BASE = ("encoder=tiny", "source=demo")


def errors(*overrides):
    return errors_of(composed_once(*BASE, *overrides))


def test_missing_values_come_first_and_nothing_is_resolved():
    cfg = compose_run(["encoder=huggingface", "source=local", "data.batch_size=0"])
    with open_dict(cfg):
        cfg.optimizer.lr = "???"
    assert errors_of(cfg) == [
        "encoder.name has no value; set encoder.name=...",
        "optimizer.lr has no value; set optimizer.lr=...",
    ]


@pytest.mark.parametrize("key", ["seed", "threads", "data.batch_size"])
@pytest.mark.parametrize("value", ["${oc.env:NOT_SET}", "${nothing}"])
def test_an_unresolved_value_names_its_key(key, value):
    (error,) = errors(f"{key}={value}")
    assert error.startswith(f"{key}: ")
    assert error.endswith(f"; set it, or {key}=...")


def test_a_check_changes_nothing_and_lists_every_error():
    cfg = compose_run([*BASE, "data.batch_size=0", "threads=0", "isotropy=zca"])
    with open_dict(cfg):
        cfg.isotropy.colour = "red"
    before = plain(cfg)
    with pytest.raises(ValueError, match=r"data\.batch_size") as caught:
        check(cfg)
    starts = ("threads must be", "data.batch_size must be", "isotropy.colour is no argument")
    found = str(caught.value).splitlines()
    assert [
        line for line, start in zip(found, starts, strict=True) if line.startswith(start)
    ] == found
    assert plain(cfg) == before


LEAST = {
    **{f"data.{key}": 1 for key in ("batch_size", "eval_batch_size", "n_train", "n_dev", "n_test")},
    **{"training.prefill_batches": 1, "training.refit_rows": 2},
    **{"training.reinit_blocks": 0, "training.head_lr_factor": 0, "seed": 0, "threads": 1},
    **{"monitor.max_rows": 2, "monitor.every_steps": 0, "monitor.map_rows": 0},
    **{"checkpoint.every_steps": 0, "checkpoint.every_s": 0},
    **{"isotropy.n_clusters": 1, "isotropy.queue_rows": 2, "isotropy.n_components": 0},
    **{f"encoder.{key}": 1 for key in ("width", "n_blocks", "n_heads")},
    **{"encoder.dropout": 0, "task.max_length": 3, "task.head_dropout": 0},
}


@pytest.mark.parametrize(("key", "least"), sorted(LEAST.items()))
def test_the_least_value_is_legal_and_one_below_is_not(key, least):
    more = ["isotropy=cluster_pca"] if key.startswith("isotropy.") else []
    assert errors(*more, f"++{key}={least}") == []
    (error,) = errors(*more, f"++{key}={least - 1}")
    assert error.startswith(f"{key} must be at least {least}, got {least - 1}")


@pytest.mark.parametrize(
    ("overrides", "legal", "rejected"),
    [
        (["isotropy=cluster_pca", "isotropy.rho"], ["1", "1e-9"], ["0", "1.5", "nan"]),
        (["encoder.dropout"], ["0.99"], ["1", "-0.1"]),
        (["training.warmup_fraction"], ["0", "1"], ["1.01", "nan"]),
        (["training.layer_decay"], ["1", "0.1"], ["0", "1.1", "nan"]),
        (["data.holdout"], ["0.5", "null"], ["0", "1", "-0.1", "nan"]),
        (["optimizer=muon", "optimizer.muon_lr"], ["0"], ["-1"]),
        (["optimizer=muon", "optimizer.momentum"], ["0"], ["1.0"]),
        (["optimizer=muon", "optimizer.muon_weight_decay"], ["0"], ["-0.1"]),
        (["seed"], ["4294967295"], ["99999999999"]),
        (["data.label_skew"], ["0", "0.999"], ["-0.1", "1", "1.5", "nan"]),
        (["data.label_noise"], ["0", "1", "0.5"], ["-0.1", "1.01", "nan"]),
        (["freezing=gradual", "freezing.every"], ["1"], ["0"]),
        (["freezing=gradual", "freezing.unit"], ["step"], ["batch"]),
        (["freezing=only", "freezing.patterns"], ["[a]"], ["bias", "[1]"]),
        (["peft=lora", "peft.r"], ["1"], ["0"]),
        (["peft=lora", "peft.dropout"], ["0"], ["1.0"]),
        (["peft=lora", "peft.target_modules"], ["[query]", "null"], ["query"]),
        (["task.form"], ["bi"], ["pair"]),
    ],
)
def test_bounds(overrides, legal, rejected):
    *others, key = overrides
    for value in legal:
        assert errors(*others, f"{key}={value}") == []
    for value in rejected:
        (error,) = errors(*others, f"{key}={value}")
        assert error.startswith(f"{key} must be ")


@pytest.mark.parametrize("content", [None, {"width": 3}, "text", [1]])
@pytest.mark.parametrize("group", ["task", "encoder", "pooling", "isotropy", "trainer"])
def test_a_group_that_is_no_part_fails_where_it_is_made(built, group, content):
    cfg = composed_once(*BASE)
    with open_dict(cfg):
        cfg[group] = OmegaConf.create(content) if isinstance(content, list | dict) else content
    from isotrain.config.parts import make

    with pytest.raises(ValueError, match="a part needs a _target_"):
        make(cfg[group])
