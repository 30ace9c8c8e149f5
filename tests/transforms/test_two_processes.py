"""Every isotropy layer on the rows of two processes: results, gradients and statistics of one.

B batch, T tokens, D width.
"""

from copy import deepcopy

import pytest
import torch
from hydra.utils import instantiate
from torch import nn

from isotrain.model.heads import LinearHead
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.model.pooling import MeanPooling
from isotrain.types import Batch, EncoderOutput
from tests.parts import names
from tests.processes import on_ranks

NAMES = names("isotropy")
WIDTH, TOKENS = 16, 5
SIZES = (23, 20, 3)  # examples of each step: 12 and 11, 10 and 10, 2 and 1
CLOSE = {"rtol": 1e-9, "atol": 1e-9}  # in float64


class Bag(nn.Module):
    """An encoder of one block: embeddings and a tanh."""

    def __init__(self):
        super().__init__()
        self.width, self.n_blocks = WIDTH, 1
        self.embeddings = nn.Embedding(40, WIDTH)
        self.block = nn.Linear(WIDTH, WIDTH)

    def forward(self, batch, after_block):
        """All hidden states."""
        hidden = self.embeddings(batch.input_ids)
        last = hidden + torch.tanh(self.block(hidden))
        return EncoderOutput((hidden, last), after_block[1](last) if after_block else last)


def whole_batch(number, n):
    """Three classes, each with words of its own, in n examples of unequal length."""
    generator = torch.Generator().manual_seed(number)
    labels = torch.randint(0, 3, (n,), generator=generator)
    ids = torch.randint(1, 20, (n, TOKENS), generator=generator) + 6 * labels[:, None]
    length = torch.randint(2, TOKENS + 1, (n, 1), generator=generator)
    mask = (torch.arange(TOKENS) < length).long()
    zeros = torch.zeros_like(ids)
    return Batch(ids * mask, mask, zeros, zeros, labels, torch.arange(n) + 100 * number)


def dealt(batch, rank):
    """The examples of one process: every second one; all of them without a rank."""
    own = slice(None) if rank is None else slice(rank, None, 2)
    parts = (batch.input_ids, batch.attention_mask, batch.token_type_ids, batch.special_mask)
    return Batch(*(x[own] for x in parts), batch.labels[own], batch.index[own])


def trained(layer, site, rank):
    """Three steps of a model, then a frozen evaluation; nothing is updated but the layer."""
    torch.manual_seed(0)
    head = LinearHead(WIDTH, n_vectors=1, n_outputs=3, dropout=0.0)
    model = IsotropicModel(Bag(), MeanPooling(), head, {site: layer}).double().train()
    if getattr(layer, "stats", "") == "start":
        layer.fit(torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(1)).double())
    found = {}
    for number, n in enumerate(SIZES):
        whole = whole_batch(number, n)
        output = model(dealt(whole, rank))
        found[f"logits {number}"] = output.logits.detach()
        wanted = torch.randn(n, 3, generator=torch.Generator().manual_seed(7)).double()
        loss = (output.logits.tanh() * (wanted if rank is None else wanted[rank::2])).sum()
        model.zero_grad()
        loss.backward()
        found[f"counters {number}"] = layer.counters | layer.gradient_counters
        for name, parameter in model.named_parameters():
            found[f"gradient {number} {name}"] = parameter.grad
        model.remember(output)
        model.observe()
    if layer.has_statistics:
        layer.fit()
    found["state"] = {name: x.clone() for name, x in layer.state_dict().items()}
    if layer.eval_stats == "batch":
        return found  # each process evaluates by the rows that it has
    model.eval()
    found["evaluation"] = model(dealt(whole_batch(9, 8), rank)).logits.detach()
    return found


def on_one_rank(rank, layers):
    # copies: torch hands a tensor to several processes as one piece of memory
    return {key: trained(deepcopy(layer), key[1], rank) for key, layer in layers.items()}


CASES = [
    *((name, "pooled") for name in NAMES),
    *((name, "tokens") for name in NAMES if name != "protect_labels"),
]


@pytest.fixture(scope="module")
def runs(composed, tmp_path_factory):
    """One process, and the two, for every layer at once: processes take seconds to start."""

    def layers():
        return {key: instantiate(composed(f"isotropy={key[0]}").isotropy)(WIDTH) for key in CASES}

    folder = tmp_path_factory.mktemp("ranks")
    return on_one_rank(None, layers()), on_ranks(on_one_rank, 2, folder, layers())


@pytest.mark.slow
@pytest.mark.parametrize("key", CASES, ids="-".join)
def test_two_processes_are_one(runs, key):
    one, ranks = runs[0][key], [found[key] for found in runs[1]]
    assert one.keys() == ranks[0].keys() == ranks[1].keys()
    if not key[0].startswith("none"):
        assert any(name.startswith("counters") for name in one)
        assert len(one["state"]) > 0
    for name, expected in one.items():
        two = [found[name] for found in ranks]
        if name.startswith("gradient"):  # of the sum of both losses
            if expected is None:
                assert two == [None, None]
                continue
            torch.testing.assert_close(two[0] + two[1], expected, **CLOSE)
            if "embeddings" in name:
                assert float(expected.norm()) > 1e-3
        elif isinstance(expected, dict):  # statistics: the same in both
            for found in two:
                torch.testing.assert_close(found, expected, **CLOSE)
        else:
            for rank in (0, 1):
                torch.testing.assert_close(two[rank], expected[rank::2], **CLOSE)
