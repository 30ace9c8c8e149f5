"""What `FitLayersCallback` gives the layers, and what it refuses."""

import os
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from isotrain.geometry.protected import Protection
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
    protect = Protection(n_leading=1, labels=call != "none")
    layer = ProtectedClusterPCA(4, n_clusters=1, n_components=1, protect=protect)
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
    ("model", "n_gpu", "told"),
    [
        (nn.Linear(2, 2), 0, "found no isotropy layer"),
        (nn.Sequential(ZCA(2)), 2, "needs a process for each GPU, and one has 2"),
        (nn.Sequential(ZCA(2, eval_stats="refit")), 0, "use eval_stats='frozen'"),
        (nn.Sequential(ZCA(2, stats="start")), 0, "call layer.fit"),
    ],
)
def test_what_it_would_do_wrong_is_refused(model, n_gpu, told):
    with pytest.raises(ValueError, match=told):
        begun(model, n_gpu)


def test_models_whose_blocks_cannot_be_read_one_by_one_are_refused():
    from transformers import T5Config, T5Model, XLNetConfig, XLNetModel

    t5 = T5Model(T5Config(vocab_size=8, d_model=4, d_kv=2, d_ff=4, num_layers=1, num_heads=1))
    xlnet = XLNetModel(XLNetConfig(vocab_size=8, d_model=4, n_layer=1, n_head=1, d_inner=4))
    for model in (t5, xlnet):
        with pytest.raises(ValueError, match="use a model like BERT or GPT-2"):
            backbone_of(nn.Sequential(model))


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
