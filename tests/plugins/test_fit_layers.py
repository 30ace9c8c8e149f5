"""What `FitLayersCallback` gives the layers, and what it rejects."""

import os
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from isotrain.plugins.fit_layers import FitLayersCallback
from isotrain.plugins.layer_isotropy import backbone_of
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.protected_cluster_pca import ProtectedClusterPCA
from isotrain.transforms.zca import ZCA
from tests.processes import on_ranks

GOES_ON = SimpleNamespace(should_evaluate=False, should_save=False, should_training_stop=False)


def begun(model, n_gpu=0):
    callback = FitLayersCallback()
    callback.on_train_begin(SimpleNamespace(n_gpu=n_gpu), None, GOES_ON, model=model)
    return callback


@pytest.mark.parametrize("call", ["places", "names", "none"])
def test_rows_and_labels_reach_the_queue_however_they_are_given(call):
    protect = {"n_leading": 1, "protect_labels": call != "none"}
    layer = ProtectedClusterPCA(4, n_clusters=1, n_components=1, **protect)
    callback = begun(nn.Sequential(layer))
    x, labels = torch.randn(12, 4), torch.arange(12) % 2
    if call == "places":
        layer(x, labels)
    elif call == "names":
        layer(labels_N=labels, x_ND=x)
    else:
        layer(x, None)
    callback.on_step_end(None, None, GOES_ON)
    assert int(layer.queue.n_filled) == 12
    callback.on_train_end(None, None, GOES_ON)
    layer(x, labels) if call != "none" else layer(x)
    assert int(layer.queue.n_filled) == 12  # nothing is looked at any more


@pytest.mark.parametrize(
    ("model", "n_gpu", "message"),
    [
        (nn.Sequential(ZCA(2)), 2, "needs a process for each GPU, and one has 2"),
        (nn.Sequential(ZCA(2, eval_stats="refit")), 0, "stats='queue' and eval_stats='frozen'"),
    ],
)
def test_what_it_would_do_wrong_is_rejected(model, n_gpu, message):
    with pytest.raises(ValueError, match=message):
        begun(model, n_gpu)


def test_an_encoder_decoder_is_rejected():
    from transformers import T5Config, T5Model

    t5 = T5Model(T5Config(vocab_size=8, d_model=4, d_kv=2, d_ff=4, num_layers=1, num_heads=1))
    with pytest.raises(ValueError, match="use a model like BERT or GPT-2"):
        backbone_of(nn.Sequential(t5))


class Block(nn.Module):
    """The last block of a BERT and an isotropy layer of its tokens."""

    def __init__(self, block, width):
        super().__init__()
        self.block, self.layer = block, ZCA(width)

    def forward(self, hidden, *args, **kwargs):
        hidden = self.block(hidden, *args, **kwargs)
        return self.layer(hidden.flatten(0, 1)).reshape(hidden.shape)


def trained_with_checkpoints(folder, reentrant):
    """The weights and layer statistics after steps of two micro-batches; None = nothing saved."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    from transformers.modeling_layers import GradientCheckpointingLayer

    class Saved(GradientCheckpointingLayer, Block):
        """A block that transformers computes again in backward."""

    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2}
    sizes |= {"intermediate_size": 8, "num_attention_heads": 2}
    model = BertForSequenceClassification(BertConfig(**sizes))
    model.bert.encoder.layer[1] = Saved(model.bert.encoder.layer[1], 8)
    ids = torch.randint(1, 20, (24, 5), generator=torch.Generator().manual_seed(1))
    rows = [{"input_ids": one.tolist(), "labels": k % 2} for k, one in enumerate(ids)]
    saves = {} if reentrant is None else {"use_reentrant": reentrant}
    args = TrainingArguments(
        str(folder),
        max_steps=4,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        gradient_checkpointing=bool(saves),
        gradient_checkpointing_kwargs=saves or None,
        learning_rate=0.01,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(model, args, train_dataset=rows, callbacks=[FitLayersCallback()]).train()
    return model.state_dict()


@pytest.mark.filterwarnings("default")  # those of the Trainer are not ours
def test_what_backward_computes_again_counts_once(tmp_path):
    plain = trained_with_checkpoints(tmp_path, None)
    assert int(plain["bert.encoder.layer.1.layer.queue._extra_state"][0]) == 160
    for reentrant in (False, True):
        found = trained_with_checkpoints(tmp_path, reentrant)
        assert found.keys() == plain.keys()
        assert all(torch.equal(found[name], plain[name]) for name in plain), reentrant


def test_a_pass_without_a_gradient_does_not_count():
    layer, x = ZCA(4), torch.randn(12, 4, requires_grad=True)
    callback = begun(nn.Sequential(layer))
    with torch.no_grad():
        layer(x)
    checkpoint(layer, x, use_reentrant=True).sum().backward()
    callback.on_step_end(None, None, GOES_ON)
    assert int(layer.queue.n_filled) == 12


class Small(nn.Module):
    """A model of the user's: a linear map, two isotropy layers of its rows, and a head."""

    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 6), nn.Linear(6, 2)
        self.clusters, self.whole = ClusterPCA(6, n_clusters=2, n_components=1), ZCA(6)
        self.double()

    def forward(self, x, labels):
        rows = self.encoder(x.double())
        logits = self.head(self.clusters(rows) + self.whole(rows))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def trained(rank, folder):
    """What three steps of the Trainer leave in the layers, two micro-batches of 16 rows a step.

    Nothing learns, and rows come in their order: any number of processes sees the same.
    """
    from transformers import Trainer, TrainingArguments

    n = 1 if rank is None else 2
    if rank is not None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    generator = torch.Generator().manual_seed(1)
    centres = 5.0 * torch.tensor([[1.0, 0, 0, 0], [0, -1.0, 0, 0]])  # two clusters far apart
    x = torch.randn(48, 4, generator=generator) + centres.repeat(24, 1)
    rows = [{"x": one.tolist(), "labels": k % 2} for k, one in enumerate(x)]
    torch.manual_seed(0)
    model = Small()
    args = TrainingArguments(
        str(folder),
        max_steps=3,
        per_device_train_batch_size=16 // n,
        gradient_accumulation_steps=2,
        train_sampling_strategy="sequential",
        learning_rate=0.0,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(model, args, train_dataset=rows, callbacks=[FitLayersCallback()]).train()
    model.eval()
    probe = torch.randn(20, 6, generator=generator).double()
    return {
        "results": [layer(probe).detach() for layer in (model.clusters, model.whole)],
        "queue": [sorted(layer.queue.rows().tolist()) for layer in (model.clusters, model.whole)],
        "batch_rows": [int(layer.queue.batch_rows) for layer in (model.clusters, model.whole)],
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of the Trainer are not ours
def test_two_processes_end_with_the_statistics_of_one(tmp_path):
    """Rows of the queues, and what the fitted layers make of other rows."""
    one = trained(None, tmp_path)
    assert [len(rows) for rows in one["queue"]] == [80, 80]  # 32 and 16 of an epoch, 32 of the next
    assert one["batch_rows"] == [16, 16]  # of a forward pass, not of a step
    for found in on_ranks(trained, 2, tmp_path, str(tmp_path)):
        for key in ("results", "queue"):
            for mine, its in zip(found[key], one[key], strict=True):
                assert torch.allclose(torch.as_tensor(mine), torch.as_tensor(its), atol=1e-9), key
