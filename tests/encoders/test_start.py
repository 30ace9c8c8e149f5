"""Two-stage runs: the encoder starts where a finished run ended, and whatever is no such run."""

import re
import shutil

import pytest
import pytorch_lightning as pl
import torch
from safetensors.torch import load_file

from isotrain.build import build
from isotrain.config.compose import content_hash
from isotrain.encoders.start import ENCODER, start_file
from isotrain.runner import explicit, folder_of, run
from isotrain.runs.files import read_result, sha256_of, write_result
from tests.stopped_runs import save_weights


@pytest.fixture(scope="module")
def base(small):
    return (*small, "metric=[]", "trainer.max_steps=2", "cache_dir=null")


@pytest.fixture(scope="module")
def first(composed, base, tmp_path_factory):
    """The folder of a finished run of rte, with an isotropy layer."""
    root = tmp_path_factory.mktemp("first")
    cfg = composed(*base, "task=rte", "isotropy=mean", f"output_dir={root}")
    run(cfg)
    return folder_of(cfg)


@pytest.fixture
def copy(first, tmp_path):
    """A copy of it that a test may break."""
    return shutil.copytree(first, tmp_path / "copy")


@pytest.fixture
def second(composed, base, tmp_path):
    """`second(init_from, ...)`: a run of another task that starts from one."""

    def compose_second(init_from, *more):
        keys = ("task=stsb", "task.form=bi", f"init_from={init_from}", f"output_dir={tmp_path}/2")
        return composed(*base, *keys, *more)

    return compose_second


def weights(folder):
    state = load_file(folder / "weights.safetensors")
    found = {k.removeprefix(ENCODER): x for k, x in state.items() if k.startswith(ENCODER)}
    assert len(found) > 20
    return found


@pytest.mark.parametrize("file", ["", "/weights.safetensors"])
def test_the_encoder_starts_with_the_bits_of_the_run(first, second, tmp_path, file):
    cfgs = second(f"{first}{file}"), second("null")
    models = []
    for cfg in cfgs:
        pl.seed_everything(0, verbose=False)
        models.append(build(cfg, tmp_path, start_file(cfg.init_from, cfg.encoder)).module.model)
    started, fresh = models
    expected, found = weights(first), started.encoder.state_dict()
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        assert torch.equal(found[name], x), name
    assert any(not torch.equal(fresh.encoder.state_dict()[name], x) for name, x in expected.items())
    others = {k: x for k, x in started.state_dict().items() if not k.startswith("encoder.")}
    for name, x in others.items():
        assert torch.equal(fresh.state_dict()[name], x), f"{name} is as without init_from"
    assert not started.state_dict().keys() & {"transforms.pooled.mean_D"}, "nothing of its layer"


def test_a_run_says_where_it_started_and_trains_on(first, second, tmp_path):
    cfg = second(first)
    run(cfg)
    result = read_result(folder_of(cfg))
    assert result["init_from"] == {
        "path": str(first),
        "sha256": sha256_of(first / "weights.safetensors"),
    }
    ended = weights(folder_of(cfg))
    assert any(not torch.equal(ended[name], x) for name, x in weights(first).items())
    assert content_hash(explicit(cfg)) != content_hash(explicit(second("null")))


def test_other_weights_at_the_same_place_are_another_run(first, copy, second):
    cfg = second(copy)
    folder = folder_of(cfg)
    assert folder == folder_of(second(first)), "the same weights elsewhere"
    state = load_file(copy / "weights.safetensors")
    state[f"{ENCODER}model.embeddings.LayerNorm.bias"] += 1
    save_weights(state, copy)
    assert folder_of(cfg) != folder


def test_a_path_may_follow_from_the_seed(first, copy, second):
    shutil.move(copy, copy.with_name("seed3"))
    cfg = second(f"'{copy.parent}/seed${{seed}}'", "seed=3")
    start_file(cfg.init_from, cfg.encoder)
    cfg.seed = 4
    assert "no result.json of a training run" in _error_of(cfg)


def _error_of(cfg):
    with pytest.raises(ValueError, match=r"init_from|weights\.safetensors") as caught:
        run(cfg)
    return str(caught.value)


def broken(folder, **changes):
    write_result(folder, read_result(folder) | changes)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (shutil.rmtree, r"no result\.json of a training run in .*copy; give the folder"),
        (
            lambda f: broken(f, status="interrupted"),
            "that run is interrupted, not finished; give its command again",
        ),
        (
            lambda f: broken(f, config=read_result(f)["config"] | {"peft": {"r": 8}}),
            "trained adapters, which start no run; train it without",
        ),
        (
            lambda f: (f / "weights.safetensors").unlink(),
            r"has no weights\.safetensors .* rerun=true",
        ),
        (
            lambda f: (f / "result.json").unlink(),
            r"no result\.json of a training run in .*copy; give the folder",
        ),
    ],
    ids=["gone", "unfinished", "of adapters", "without weights", "without a record"],
)
def test_what_is_no_finished_run_is_rejected_before_anything_is_built(copy, second, harm, said):
    harm(copy)
    cfg = second(copy)
    error_text = _error_of(cfg)
    assert re.search(said, error_text)
    assert not (copy.parent / "2").exists()


def test_another_encoder_is_rejected(first, second, tmp_path):
    cfg = second(first, "encoder.n_blocks=1", "encoder.dropout=0")
    error_text = _error_of(cfg)
    assert (
        "another encoder (encoder.n_blocks=2 there and 1 here, dropout=0.1 there and" in error_text
    )
    assert not (tmp_path / "2").exists()


def test_a_checkpoint_that_does_not_fit_or_is_none_is_rejected(copy, second, tmp_path):
    state = load_file(copy / "weights.safetensors")
    name = f"{ENCODER}model.embeddings.LayerNorm.bias"
    kept = state.pop(name)
    save_weights(state, copy)
    assert "does not match this" in _error_of(second(copy))
    state[name] = kept[:-1]
    save_weights(state, copy)
    assert "size mismatch" in _error_of(second(copy))
    (copy / "weights.safetensors").write_bytes(b"no checkpoint")
    assert "weights.safetensors is damaged" in _error_of(second(copy))
    assert not (tmp_path / "2").exists()
