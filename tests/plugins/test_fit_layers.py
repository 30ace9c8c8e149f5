"""What `FitLayersCallback` gives the layers, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from isotrain.plugins.fit_layers import FitLayersCallback
from isotrain.plugins.hidden_states import backbone_of
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.zca import ZCA

GOES_ON = SimpleNamespace(should_evaluate=False, should_save=False, should_training_stop=False)


def begun(model, n_gpu=0):
    callback = FitLayersCallback()
    callback.on_train_begin(SimpleNamespace(n_gpu=n_gpu), None, GOES_ON, model=model)
    return callback


@pytest.mark.parametrize("call", ["places", "names", "none"])
def test_rows_and_labels_reach_the_queue_however_they_are_given(call):
    protect = "none" if call == "none" else "labels"
    layer = ClusterPCA(4, n_clusters=1, n_components=1, protect=protect)
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


def test_a_layer_of_the_start_that_is_fitted_is_welcome():
    layer = ZCA(2, stats="start")
    layer.fit(torch.randn(20, 2))
    begun(nn.Sequential(layer))


def test_models_whose_blocks_cannot_be_read_one_by_one_are_refused():
    from transformers import T5Config, T5Model, XLNetConfig, XLNetModel

    t5 = T5Model(T5Config(vocab_size=8, d_model=4, d_kv=2, d_ff=4, num_layers=1, num_heads=1))
    xlnet = XLNetModel(XLNetConfig(vocab_size=8, d_model=4, n_layer=1, n_head=1, d_inner=4))
    for model in (t5, xlnet):
        with pytest.raises(ValueError, match="use a model like BERT or GPT-2"):
            backbone_of(nn.Sequential(model))
