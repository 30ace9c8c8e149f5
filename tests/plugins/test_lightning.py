"""The callbacks in LightningModules of somebody else, under both Lightning packages."""

import csv
import json
import re
import sys
from contextlib import redirect_stdout
from copy import deepcopy
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from isotrain.encoders.tiny import build_tiny
from isotrain.plugins.pytorch_lightning import FitLayers, IsotropyMonitor
from isotrain.training.monitor.hooks import text_hashes
from isotrain.transforms.zca import ZCA
from tests.dev_rows import validated
from tests.plugins.lightning_script import METRICS, TEXTS, Classifier, loader, run
from tests.processes import printed_by
from tests.wandb_record import history, newest

SCRIPT = Path(__file__).with_name("lightning_script.py")
PAGE = Path(__file__).parents[2] / "docs" / "lightning.md"
KEYS = {
    f"isotropy/{metric}/layer_0{layer}/{view}"
    for metric in (*METRICS, "n_rows")
    for layer in range(3)
    for view in ("cls", "mean")
}


@pytest.fixture(autouse=True)
def one_package(monkeypatch):
    """Other tests of a session may have imported both."""
    monkeypatch.delitem(sys.modules, "lightning.pytorch", raising=False)


def scripted(package, folder, **options):
    """What the script prints: under the package of these tests and in one process, here."""
    folder.mkdir(exist_ok=True)
    if package == "pytorch_lightning" and options.get("devices", 1) == 1:
        with redirect_stdout(StringIO()) as out:
            run(folder, **options)
        return json.loads(out.getvalue().splitlines()[-1])
    root = {"PYTHONPATH": str(SCRIPT.parents[2]), "WANDB_MODE": "offline"}
    out = printed_by(SCRIPT, package, folder, json.dumps(options), cwd=folder, **root)
    return json.loads(next(line for line in out.splitlines() if line.startswith("{")))


def logged(folder):
    """The isotropy values in the CSV logger's file, an evaluation each."""
    with (folder / "csv" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name.startswith("isotropy/")]
    return [{k: float(row[k]) for k in names} for row in rows if row[names[0]]]


THEIR_WARNINGS = pytest.mark.filterwarnings("default")


@THEIR_WARNINGS
@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_a_script_logs_curves_and_stops_by_one_of_them(package, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    seen = scripted(package, tmp_path, epochs=9, patience=2, wandb=True)
    assert package == "pytorch_lightning" or seen["imported"] == [package]
    assert seen["epochs"] == 3, "no value is better by 9 than the first, and two waits end it"
    assert seen["values"].keys() == KEYS
    curves = logged(tmp_path)
    assert [set(values) for values in curves] == [KEYS] * 3
    assert curves[-1] == pytest.approx(seen["values"], rel=1e-6, abs=1e-7)
    assert curves[0]["isotropy/cosine_drift/layer_02/mean"] == pytest.approx(0.0, abs=1e-6)
    assert curves[-1]["isotropy/cosine_drift/layer_02/mean"] > 1e-5
    sent = {key for row in history(newest(tmp_path)) for key in row if key.startswith("isotropy/")}
    assert sent == KEYS


def page_code(number, folder, package):
    """A block of the page with a tiny encoder and a CSV logger, and its files."""
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[number]
    tiny = build_tiny(16, n_blocks=2, n_heads=2)
    for part in (tiny.model, tiny.tokenizer):
        part.save_pretrained(folder / "bert")
    rows = [f'"{TEXTS[i % len(TEXTS)]}, no. {i}",{i % 2}' for i in range(300)]
    (folder / "reviews.csv").write_text("\n".join(["text,label", *rows]))
    for said, put in (
        ("import pytorch_lightning as pl", f"import {package} as pl"),
        ("bert-base-uncased", str(folder / "bert")),
        ("callbacks=[", "logger=pl.loggers.CSVLogger('.', 'csv', ''), callbacks=["),
    ):
        assert said in code
        code = code.replace(said, put)
    return code.replace("layer_12", "layer_02")


@THEIR_WARNINGS
def test_isotrains_module_trains_in_a_plain_trainer_as_on_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(page_code(1, tmp_path, "pytorch_lightning"), {})
    assert len(logged(tmp_path)) == 3
    with (tmp_path / "csv" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len([row for row in rows if row["val/accuracy"]]) == 3


@THEIR_WARNINGS
def test_the_page_trains_on_a_csv_and_logs_every_layer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = page_code(0, tmp_path, "pytorch_lightning")
    assert len(code.splitlines()) <= 48
    exec(code, {})
    curves = logged(tmp_path)
    assert len(curves) >= 4
    assert len(curves[0]) == 3 * 3 * 3
    assert {values["isotropy/n_rows/layer_02/mean"] for values in curves} == {60}


@pytest.mark.slow
@THEIR_WARNINGS
def test_two_processes_measure_and_observe_what_one_does(tmp_path):
    one, two = (
        scripted("pytorch_lightning", tmp_path / str(n), devices=n, epochs=1, patience=9, lr=0.0)
        for n in (1, 2)
    )
    assert (one["n_filled"], two["n_filled"]) == (len(TEXTS), len(TEXTS))
    first, second = (logged(tmp_path / str(n))[0] for n in (1, 2))
    assert first == pytest.approx(second, rel=1e-5, abs=1e-6)
    assert first["isotropy/n_rows/layer_02/mean"] == len(TEXTS)


@THEIR_WARNINGS
def test_a_resumed_script_has_the_values_of_one_that_was_not_stopped(tmp_path):
    whole = scripted("pytorch_lightning", tmp_path / "whole", epochs=3)
    scripted("pytorch_lightning", tmp_path / "parts", epochs=1)
    again = scripted("pytorch_lightning", tmp_path / "parts", epochs=3, resume=True)
    assert again["steps"] == whole["steps"] == 18
    assert again["values"] == whole["values"]
    assert (again["n_filled"], again["centre"]) == (whole["n_filled"], whole["centre"])


class Others(pl.LightningModule):
    """Somebody's module around the encoder of an experiment: each sequence on its own."""

    def __init__(self, encoder):
        super().__init__()
        self.backbone = encoder.model

    def validation_step(self, batch, batch_idx):
        for ids, mask, segments in batch["sequences"]:
            self.backbone(input_ids=ids, attention_mask=mask, token_type_ids=segments)


def batches_of(examples, pad, size, pads_left=False):
    """Batches with pads on one side; a list of `size` examples each."""

    def padded(lists):
        longest = max(map(len, lists)) + 2  # more pads than isotrain has
        fill = [[pad] * (longest - len(ids)) for ids in lists]
        rows = [f + ids if pads_left else ids + f for ids, f in zip(lists, fill, strict=True)]
        masks = [[1] * len(ids) + [0] * len(f) for ids, f in zip(lists, fill, strict=True)]
        masks = [mask[::-1] for mask in masks] if pads_left else masks
        return torch.tensor(rows), torch.tensor(masks)

    def collate(chosen):
        n = len(chosen[0].input_ids)
        labels = torch.tensor([one.label for one in chosen])
        sequences = [
            (
                *padded([one.input_ids[q] for one in chosen]),
                padded([one.token_type_ids[q] for one in chosen])[0],
            )
            for q in range(n)
        ]
        return {"sequences": sequences, "labels": labels}

    return DataLoader(examples, size, collate_fn=collate)


def measured(module, batches, monitor, tmp_path):
    trainer = pl.Trainer(
        accelerator="cpu", callbacks=[monitor], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.validate(module, batches, verbose=False)
    assert trainer.callback_metrics.keys() == monitor.newest.keys()
    return monitor.newest


@pytest.mark.parametrize(
    "overrides", [("task=snli",), ("task=snli", "task.form=bi", "pooling=mean")], ids=["one", "two"]
)
def test_values_are_those_of_isotrains_own_run(built, tmp_path, overrides):
    metrics = ["mean_cosine", "isoscore", "partition", "partition_null", "label_silhouette"]
    line = f"metric=[{','.join([*metrics, 'self_similarity', 's_intra'])}]"
    experiment = built(*overrides, line, "monitor.max_rows=100000", "isotropy=none")
    own = {k: v for k, v in validated(experiment).items() if "/layer_" in k}
    encoder = experiment.module.model.encoder
    examples = experiment.data.examples["dev"]
    monitor = IsotropyMonitor([*metrics, "self_similarity", "s_intra"], max_rows=100000)
    batches = batches_of(examples, encoder.tokenizer.pad_token_id, 5)
    found = measured(Others(encoder), batches, monitor, tmp_path)
    assert found.keys() == own.keys()
    for key in own:
        assert found[key] == pytest.approx(own[key], rel=1e-6, abs=1e-6), key


def test_above_the_budget_the_same_embeddings_for_any_batches_and_either_side_of_pads(
    built, tmp_path
):
    experiment = built("task=rte", "metric=[]")
    encoder, examples = experiment.module.model.encoder, experiment.data.examples["dev"]
    pad = encoder.tokenizer.pad_token_id
    found = [
        measured(
            Others(encoder), batches_of(given, pad, size), IsotropyMonitor(max_rows=17), tmp_path
        )
        for given, size in ((examples, 3), (examples[::-1], 8))
    ]
    assert found[0]["isotropy/n_rows/layer_01/tokens"] == 17
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_text_is_named_by_its_tokens_whatever_its_pads():
    ids = torch.tensor([[0, 0, 5, 6, 7], [5, 6, 7, 0, 0], [5, 7, 6, 0, 0]])
    right = torch.tensor([[1, 1, 1, 0, 0]])
    hashes = [text_hashes(ids[1:2], right), text_hashes(ids[1:2, :3], right[:, :3])]
    assert hashes[0] == hashes[1] != text_hashes(ids[2:], right)
    assert 0 <= int(hashes[0]) < 2**42


def test_pads_on_the_left_are_left_out(tmp_path):
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=50, n_positions=32, n_embd=8, n_layer=2, n_head=2)
    model = GPT2Model(config).eval()

    class Decoder(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def validation_step(self, batch, batch_idx):
            for ids, mask, _ in batch["sequences"]:
                places = (mask.cumsum(1) - 1).clamp_min(0)
                self.model(ids, attention_mask=mask, position_ids=places)

    class Text:
        def __init__(self, ids):
            self.input_ids, self.label = [ids], 0
            self.token_type_ids = [[0] * len(ids)]

    texts = [Text([*range(3, 5 + n)]) for n in range(6)]
    right, left = (
        measured(
            Decoder(), batches_of(texts, 0, 4, side), IsotropyMonitor(["mean_cosine"]), tmp_path
        )
        for side in (False, True)
    )
    assert right == pytest.approx(left, rel=1e-5)
    assert right["isotropy/n_rows/layer_00/tokens"] == sum(len(t.input_ids[0]) for t in texts)


def trained(module, tmp_path, *callbacks, ckpt_path=None, size=8, **options):
    trainer = pl.Trainer(
        **{"max_epochs": 1, "enable_checkpointing": False} | options, accelerator="cpu",
        callbacks=list(callbacks), logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, loader(module, size), loader(module), ckpt_path=ckpt_path)
    return trainer


def test_a_layer_observes_each_step_once_whatever_computes_it(tmp_path):
    queues = {}
    for name, module, options in (
        ("plain", Classifier(), {}),
        ("checkpoints", Classifier(checkpoints=True), {}),
        ("accumulation", Classifier(), {"accumulate_grad_batches": 2}),
    ):
        calls, observe = [], module.isotropy.observe
        module.isotropy.observe = lambda x, calls=calls, of=observe: (calls.append(len(x)), of(x))
        trainer = trained(module, tmp_path, FitLayers(), **options)
        queues[name] = module.isotropy.queue.rows()
        assert sum(calls) == len(TEXTS)
        assert len(calls) == trainer.global_step == (3 if options else 6)
        assert bool(module.isotropy.is_fitted)
        assert not module.isotropy._forward_pre_hooks
    torch.testing.assert_close(queues["plain"], queues["checkpoints"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights_only", [False, True])
def test_a_checkpoint_between_evaluations_has_the_statistics_of_its_step(tmp_path, weights_only):
    module = Classifier()
    saved = pl.callbacks.ModelCheckpoint(
        tmp_path / "ckpt", every_n_train_steps=2, save_top_k=-1, save_weights_only=weights_only
    )
    trained(module, tmp_path, FitLayers(), saved, enable_checkpointing=True)
    assert len(list((tmp_path / "ckpt").glob("*.ckpt"))) == 3
    for path in sorted((tmp_path / "ckpt").glob("*.ckpt")):
        state = torch.load(path, weights_only=True)["state_dict"]
        loaded = Classifier()
        loaded.load_state_dict(state)
        frozen = loaded.isotropy.centre_KD.clone()
        assert bool(loaded.isotropy.is_fitted)
        loaded.isotropy.fit()
        torch.testing.assert_close(loaded.isotropy.centre_KD, frozen)


@pytest.mark.parametrize(
    ("module", "callback", "message"),
    [
        (lambda: Classifier(ZCA(16, stats="start")), FitLayers, r"call layer\.fit\(x\) before"),
        (lambda: Classifier(ZCA(16, eval_stats="refit")), FitLayers, "eval_stats='frozen'"),
        (lambda: Idle(), FitLayers, "ClusterPCA was not seen in a training step"),
        (lambda: Idle(), IsotropyMonitor, "saw no forward pass of BertModel in validation_step"),
        (lambda: Classifier(), lambda: IsotropyMonitor(encoder="head"), "Linear holds none"),
        (lambda: Classifier(), lambda: IsotropyMonitor(encoder="berd"), "has bert, isotropy, head"),
        (lambda: Classifier(), lambda: IsotropyMonitor(max_rows=1), "max_rows must be 2 or more"),
        (
            lambda: Teacher(),
            lambda: IsotropyMonitor(),
            r"holds several \(bert, teacher\); name one",
        ),
        (lambda: Classifier(nn.Identity()), FitLayers, "FitLayers finds no isotropy layer"),
        (lambda: Classifier(), lambda: IsotropyMonitor(["nonsense"]), "'nonsense' is no metric"),
        (lambda: Classifier(), lambda: IsotropyMonitor(["alignment"]), "needs positives"),
        (lambda: Classifier(), lambda: IsotropyMonitor(views=["first"]), "views are some of"),
        (lambda: Unlabelled(), lambda: IsotropyMonitor(["label_silhouette"]), "a label per seq"),
    ],
)
def test_what_would_mislead_is_an_error(module, callback, message, tmp_path):
    others = [] if callback in (FitLayers, IsotropyMonitor) else [FitLayers()]
    with pytest.raises(ValueError, match=message):
        trained(module(), tmp_path, callback(), *others)


class Unlabelled(Classifier):
    """Its batches are seen without labels."""

    def on_before_batch_transfer(self, batch, dataloader_idx):
        return {"classes" if key == "labels" else key: x for key, x in batch.items()}

    def loss(self, batch):
        return super().loss(batch | {"labels": batch["classes"]})


class Teacher(Classifier):
    """It has a second transformers model."""

    def __init__(self):
        super().__init__()
        self.teacher = deepcopy(self.bert)


class Idle(Classifier):
    """It runs neither encoder nor layer."""

    def loss(self, batch):
        return self.head(torch.ones(2, 16)).sum()


@pytest.mark.filterwarnings("default")  # of the compiler
@pytest.mark.parametrize("in_place", [True, False])
def test_a_compiled_module_is_measured_and_observed(tmp_path, in_place):
    found = []
    for is_compiled in (False, True):
        module, monitor = Classifier(ZCA(16)), IsotropyMonitor(METRICS)
        for name in ("bert", "isotropy") if is_compiled else ():
            part = getattr(module, name)
            if in_place:
                part.compile(backend="eager")
            else:
                setattr(module, name, torch.compile(part, backend="eager"))
        trained(module, tmp_path, FitLayers(), monitor)
        layer = getattr(module.isotropy, "_orig_mod", module.isotropy)
        found.append((monitor.newest, layer.queue.rows()))
    (values, rows), (compiled_values, compiled_rows) = found
    assert values == pytest.approx(compiled_values, rel=1e-4, abs=1e-5)
    torch.testing.assert_close(rows, compiled_rows, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch")
def test_a_run_resumed_within_an_epoch_observes_whole_steps(tmp_path):
    """With two micro-batches a step, the first of which is no step yet.

    Lightning begins the loader anew; every step has the same twelve texts.
    """

    class Sizes(pl.Callback):
        def on_fit_start(self, trainer, pl_module):
            self.seen, observe = [], pl_module.isotropy.observe
            pl_module.isotropy.observe = lambda x: (self.seen.append(len(x)), observe(x))

    saved = pl.callbacks.ModelCheckpoint(tmp_path / "ckpt", every_n_train_steps=1, save_top_k=-1)
    options = {"accumulate_grad_batches": 2, "enable_checkpointing": True, "size": 6}
    whole, rest, module = Sizes(), Sizes(), Classifier()
    trained(module, tmp_path, whole, FitLayers(), saved, **options)
    assert whole.seen == [12] * 4
    again = Classifier()
    path = next((tmp_path / "ckpt").glob("*step=2.ckpt"))
    trained(again, tmp_path, rest, FitLayers(), saved, ckpt_path=path, **options)
    assert rest.seen == [12] * 2
    torch.testing.assert_close(again.isotropy.queue.rows(), module.isotropy.queue.rows())


def test_a_validation_before_the_first_step_needs_a_fitted_layer(tmp_path):
    early = {"accumulate_grad_batches": 4, "val_check_interval": 2, "num_sanity_val_steps": 0}
    with pytest.raises(ValueError, match=r"no statistics before the first optimizer step"):
        trained(Classifier(), tmp_path, FitLayers(), **early)
    module = Classifier()
    module.isotropy.fit(torch.randn(32, 16))
    trained(module, tmp_path, FitLayers(), **early)


def test_isotrains_module_needs_no_second_observer(built, tmp_path):
    experiment = built("task=rte", "isotropy=mean", "metric=[]")
    experiment.trainer.callbacks.append(FitLayers())
    with pytest.raises(ValueError, match="FineTuning fits its isotropy layers itself"):
        experiment.trainer.fit(experiment.module, datamodule=experiment.data)


def test_with_both_packages_imported_the_two_modules_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", ModuleType("lightning.pytorch"))
    both = r"isotrain\.plugins\.lightning or from isotrain\.plugins\.pytorch_lightning"
    with pytest.raises(ImportError, match=both):
        exec("from isotrain import FitLayers")
