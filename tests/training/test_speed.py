"""Which paths a run takes, why not the others, and that a run with them is a run."""

from itertools import chain

import pytest
import torch

from isotrain.encoders import fast
from isotrain.encoders.fast import LaneDropout
from isotrain.training import speed


@pytest.mark.parametrize(
    ("overrides", "path", "why"),
    [
        ((), "dropout", "taken"),
        ((), "last_block", "taken"),
        (("speed=exact",), "dropout", "switched off"),
        (("speed=exact",), "last_block", "switched off"),
        (("speed.last_block=false",), "last_block", "switched off"),
        (("encoder.dropout=0",), "dropout", "the encoder has no dropout"),
        (("pooling=mean",), "last_block", "the pooling reads all tokens"),
        (("isotropy=mean", "site=[tokens]"), "last_block", "site=tokens reads all tokens"),
        (("isotropy=mean", "site=[layer_2]"), "last_block", "site=layer_2 reads all tokens"),
        (("isotropy=mean", "site=[layer_1]"), "last_block", "taken"),
        (
            ("objective=[cosreg]", "objective.cosreg.reads=[all/tokens]"),
            "last_block",
            "objective=cosreg reads all tokens",
        ),
        (("objective=[cosreg]",), "last_block", "taken"),
        ((), "packing", "data.batching=length pads little"),
        (("data.batching=random",), "packing", "taken"),
        (("task=stsb", "task.form=bi", "pooling=mean"), "packing", "taken"),
        (("monitor.every_steps=2",), "last_block", "monitor.every_steps reads all tokens"),
    ],
)
def test_a_run_says_which_paths_it_takes(built, overrides, path, why):
    experiment = built(*overrides)
    assert experiment.paths[path] == why
    model = experiment.module.model
    has_lanes = any(isinstance(part, LaneDropout) for part in model.encoder.modules())
    assert has_lanes == (experiment.paths["dropout"] == "taken")
    reads = "all" if model.fast is None else model.fast.reads
    assert (reads != "all") == (experiment.paths["last_block"] == "taken")


@pytest.mark.parametrize(
    "form",
    [
        ("data.batching=random",),
        ("data.batching=random", "site=[layer_1]"),
        ("task=stsb", "task.form=bi", "pooling=mean"),
    ],
)
def test_losses_and_gradients_without_dropout_are_those_of_the_exact_step(built, form):
    losses, gradients = [], []
    for chosen in ("fast", "exact"):
        experiment = built("encoder.dropout=0", "isotropy=mean", *form, f"speed={chosen}")
        assert (experiment.paths["packing"] == "taken") == (chosen == "fast")
        module = experiment.module.train()
        (batch,) = experiment.data.first_batches(1)
        assert not batch.attention_mask.all()  # it has pads
        output = module.model(batch)
        loss = module.task.loss(output.logits, batch.labels)
        loss.backward()
        losses.append(loss.detach())
        gradients.append({n: p.grad for n, p in module.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*losses, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


FROZEN = ("freezing=first_n", "freezing.n_blocks=1")


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (FROZEN, "taken"),
        (("freezing=gradual",), "taken"),
        (("freezing=head_first",), "taken"),
        ((), "no block is frozen"),
        ((*FROZEN, "training.frozen_dropout=true"), "training.frozen_dropout=true"),
        ((*FROZEN, "cache_dir=null"), "cache_dir=null"),
        ((*FROZEN, "isotropy=mean", "site=[layer_1]"), "taken"),
        (
            (*FROZEN, "objective=[cosreg]", "objective.cosreg.reads=[layer_0/mean,pooled]"),
            "a layer, objective or monitor reads frozen blocks",
        ),
        ((*FROZEN, "monitor.every_steps=1"), "a layer, objective or monitor reads frozen blocks"),
        ((*FROZEN, "speed.prefix_gb=0.00001"), "0.0 GB, above speed.prefix_gb=1e-05"),
    ],
)
def test_a_run_says_why_frozen_blocks_are_computed(built, overrides, why):
    assert built(*overrides).paths["frozen_prefix"] == why


@pytest.mark.parametrize(
    "freezing",
    [
        ("freezing=first_n", "freezing.n_blocks=1"),
        ("freezing=gradual", "freezing.unit=step", "freezing.every=2"),
        ("freezing=head_only",),
        ("freezing=head_first", "freezing.share=0.5"),
        ("freezing=head_only", "isotropy=mean", "site=[layer_2]"),
        ("freezing=first_n", "freezing.n_blocks=1", "data.batching=random"),
        ("freezing=head_first", "freezing.share=0.5", "data.batching=random"),
    ],
)
def test_training_from_the_frozen_prefix_is_training(built, tmp_path, freezing):
    def trained(*overrides):
        experiment = built(*overrides)
        experiment.trainer.fit(experiment.module, datamodule=experiment.data)
        return dict(experiment.module.named_parameters())

    runs = [
        trained(
            *freezing,
            "trainer.max_steps=6",
            "trainer.max_epochs=3",
            *(f"cache_dir={tmp_path / is_taken}", f"speed.frozen_prefix={is_taken}"),
        )
        for is_taken in ("true", "false")
    ]
    assert {file.parents[2].name for file in tmp_path.rglob("*.npy")} == {"true"}
    torch.testing.assert_close(*runs, rtol=1e-4, atol=1e-5)


def test_every_block_is_compiled_where_it_is_asked_for(built, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda block, **how: compiled.append(block))
    assert "compile" not in built().paths
    assert not compiled
    experiment = built("speed.compile=true")
    assert experiment.paths["compile"] == "taken"
    assert compiled == list(experiment.module.model.encoder.blocks)


@pytest.mark.campaign  # a minute of compiling
@pytest.mark.filterwarnings("ignore")  # the compiler sets off warnings of torch
def test_compiled_blocks_compute_the_same(built):
    losses, gradients = [], []
    for compiles in ("false", "true"):
        paths = ("speed=exact", "speed.packing=true", "data.batching=random")
        experiment = built("encoder.dropout=0", *paths, f"speed.compile={compiles}")
        module = experiment.module.train()
        for batch in experiment.data.first_batches(2):  # of two lengths
            loss = module.task.loss(module.model(batch).logits, batch.labels)
            loss.backward()
            losses.append(loss.detach())
        gradients.append({n: p.grad for n, p in module.named_parameters() if p.grad is not None})
    assert experiment.paths["compile"] == "taken"
    torch.testing.assert_close(losses[:2], losses[2:], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_the_speedup_of_bf16_is_the_ratio_of_the_best_times(monkeypatch):
    """Products take 4, 4.5, … s in float32 and 2, 2.25, … s in bfloat16."""
    takes = [s for k in range(50) for s in (4.0 + k / 2, 2.0 + k / 4)]
    clock = chain.from_iterable((1000.0 * k, 1000.0 * k + s) for k, s in enumerate(takes))
    before = torch.get_rng_state()
    with monkeypatch.context() as patch:
        patch.setattr(speed.time, "perf_counter", lambda: next(clock))
        assert speed.bf16_speedup() == 2.0
    assert torch.equal(torch.get_rng_state(), before)


def test_states_that_cannot_be_kept_are_computed(built, monkeypatch):
    def fail(*_arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr(speed, "FrozenPrefix", fail)
    experiment = built(*FROZEN, "trainer.max_steps=2")
    with pytest.warns(UserWarning, match="cannot be kept .*No space left"):
        experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert experiment.trainer.global_step == 2


def test_an_encoder_unlike_bert_takes_no_path_of_berts(built, monkeypatch):
    monkeypatch.setattr(fast, "is_bert_like", lambda _block: False)
    paths = built(*FROZEN, "data.batching=random").paths
    for name in ("last_block", "packing", "frozen_prefix"):
        assert paths[name] == "for encoders like BERT"
