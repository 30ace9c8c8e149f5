"""Objectives as losses of sentence-transformers, against formulas and the objectives by hand."""

import json
from inspect import signature

import pytest
import torch
from hydra.utils import get_class
from omegaconf import OmegaConf
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from isotrain.objectives.alignment import Alignment
from isotrain.objectives.angle import AnglE
from isotrain.objectives.istar import IStar
from isotrain.objectives.simcse import SimCSE
from isotrain.objectives.supcon import SupCon
from isotrain.objectives.uniformity import Uniformity
from isotrain.plugins.sentence_losses import SentenceLoss
from tests.parts import CONF, names
from tests.processes import on_ranks

WIDTH, N = 6, 10
OBJECTIVES = names("objective")


class Noisy(nn.Module):
    """A model whose dropout is noise of its own generator; it writes into what it is given."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, WIDTH, dtype=torch.float64)
        self.generator = torch.Generator().manual_seed(1)

    def forward(self, features):
        assert "sentence_embedding" not in features
        noise = torch.rand(features["x"].shape, generator=self.generator, dtype=torch.float64)
        features["sentence_embedding"] = self.linear(features["x"] * (noise > 0.1))
        return features


def columns(n_columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (n_columns, N, 4)
    return [{"x": x} for x in torch.randn(shape, generator=generator, dtype=torch.float64)]


def views_by_hand(n_views, given):
    """What the model gives in as many passes, from the same start."""
    model = Noisy()
    passes = [[model(dict(c))["sentence_embedding"] for c in given] for _ in range(n_views)]
    return model, [[torch.stack(vectors, dim=1)] for vectors in passes]


def made(name):
    """The objective of a yaml, reading the embeddings."""
    kind = get_class(OmegaConf.load(CONF / "objective" / f"{name}.yaml")[name]["_target_"])
    given = {"weight": 0.5, "width": WIDTH, "n_blocks": 2, "reads": ["pooled"], "seed": 0}
    return kind(**{k: v for k, v in given.items() if k in signature(kind).parameters})


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if not made(name).reads_start])
def test_every_objective_is_the_loss_it_is_by_hand_with_its_gradient(name):
    objective, twin = made(name), made(name)
    needs = objective.needs
    given = columns(1 if needs in ("classes", "rows") else 2)
    labels, model = torch.arange(N) % 3, Noisy()
    loss = SentenceLoss(model, objective)(given, labels)
    other, views = views_by_hand(objective.n_views, given)
    expected = 0.5 * twin(views, labels)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    loss.backward()
    expected.backward()
    assert torch.allclose(model.linear.weight.grad, other.linear.weight.grad, rtol=1e-7)
    assert model.linear.weight.grad.abs().max() > 0


def plain(features):
    return {"sentence_embedding": features["x"]}


def test_simcse_uniformity_and_istar_are_their_formulas():
    given = columns(3)
    a, b, c = (normalize(column["x"]) for column in given)
    logits = torch.cat([a @ b.T, a @ c.T], dim=1) / 0.05  # the third column is a hard negative
    simcse = cross_entropy(logits, torch.arange(N))
    uniformity = torch.exp(-2.0 * torch.pdist(torch.cat([a, b, c])).square()).mean().log()
    eigenvalues = torch.linalg.eigvalsh(torch.cov(torch.cat([c["x"] for c in given]).T))
    d = len(eigenvalues)
    isoscore = (eigenvalues.sum() ** 2 / eigenvalues.square().sum() - 1.0) / (d - 1.0)
    loss = SentenceLoss(
        plain,
        SimCSE(1.0, 4, positives="pair"),
        Uniformity(0.1),
        IStar(weight=-2.0, width=4, n_blocks=2, reads=["pooled"]),
    )
    found = {name: value.item() for name, value in loss(given).items()}
    expected = {"simcse": simcse, "uniformity": 0.1 * uniformity, "istar": -2.0 * (1.0 - isoscore)}
    assert found == pytest.approx({name: value.item() for name, value in expected.items()})


def test_a_queue_holds_the_batches_before_and_no_evaluation():
    def objective():
        return IStar(weight=1.0, width=4, n_blocks=2, reads=["pooled"], reference_rows=64)

    first, second, other = columns(2), columns(2, seed=1), columns(2, seed=2)
    loss, twin = SentenceLoss(plain, objective()), objective()

    def by_hand(given):
        return [[torch.stack([c["x"] for c in given], dim=1)]]

    nothing = torch.zeros(N)
    assert loss(first).item() == pytest.approx(twin(by_hand(first), nothing).item())
    with torch.no_grad():
        loss(other)
    twin.observe(by_hand(first), nothing)
    assert loss(second).item() == pytest.approx(twin(by_hand(second), nothing).item())


@pytest.mark.parametrize(
    ("objectives", "said"),
    [
        ([IStar(weight=1.0, width=4, n_blocks=2)], "reads=\\['pooled'\\]"),
        ([Uniformity(1.0, reads=["layer_1/cls"])], "reads \\['layer_1/cls'\\]"),
        ([IStar(1.0, 4, 2, reads=["pooled"], reference="epoch")], "reference='queue'"),
        ([Uniformity(1.0), Uniformity(2.0)], "different classes"),
        ([], "different classes"),
    ],
)
def test_what_a_loss_cannot_have_is_rejected_when_it_is_made(objectives, said):
    with pytest.raises(ValueError, match=said):
        SentenceLoss(plain, *objectives)


@pytest.mark.parametrize(
    ("objective", "n_columns", "labels", "said"),
    [
        (AnglE(1.0), 1, torch.zeros(N), "exactly two vectors"),
        (AnglE(1.0), 2, None, "labels"),
        (SupCon(1.0, 4), 2, torch.zeros(N), "one vector"),
        (Alignment(1.0, positives="pair"), 3, None, "exactly two vectors"),
        (Alignment(1.0, positives="pair", positive_labels=[1, 1]), 2, None, "labels"),
        (SimCSE(1.0, 4, positives="pair"), 1, None, "two vectors"),
    ],
)
def test_columns_and_labels_that_do_not_fit_are_rejected(objective, n_columns, labels, said):
    with pytest.raises(ValueError, match=said):
        SentenceLoss(plain, objective)(columns(n_columns), labels)


def test_the_model_card_gets_settings_and_papers():
    chosen = SimCSE(0.5, 4, positives="pair", temperature=0.1, projection="mlp")
    loss = SentenceLoss(plain, chosen, Uniformity(1.0, t=3.0))
    settings = json.loads(json.dumps(loss.get_config_dict()))
    assert settings["simcse"]["positives"] == "pair"
    assert settings["simcse"]["temperature"] == 0.1
    assert settings["uniformity"] == {"weight": 1.0, "reads": ["pooled"], "t": 3.0}
    assert "2104.08821" in loss.citation
    assert "2005.10242" in loss.citation
    assert [p.shape for p in loss.parameters()] == [(4, 4), (4,)]  # of the projection


def on_rank(rank):
    """Loss and averaged gradient of a rank's share, every second example."""
    from torch import distributed

    torch.manual_seed(0)
    linear = nn.Linear(4, WIDTH, dtype=torch.float64)
    loss = SentenceLoss(
        lambda features: {"sentence_embedding": linear(features["x"])},
        SimCSE(1.0, WIDTH, positives="pair", positive_labels=[1, 2]),
    )
    n, share = (1, slice(None)) if rank is None else (2, slice(rank, None, 2))
    own = [{"x": column["x"][share]} for column in columns(2)]
    value = loss(own, (torch.arange(N) % 3)[share])
    value.backward()
    gradient = linear.weight.grad
    if rank is not None:
        distributed.all_reduce(gradient)
    return value.item(), gradient / n


def test_two_processes_compute_the_loss_and_gradient_of_one(tmp_path):
    value, gradient = on_rank(None)
    for found, averaged in on_ranks(on_rank, 2, tmp_path):
        assert found == pytest.approx(value)
        assert torch.allclose(averaged, gradient)
