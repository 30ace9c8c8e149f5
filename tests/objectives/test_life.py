"""Every objective inside `ExtraLosses`: two processes, accumulation, tiny batches.

A = Q·B sequences, T tokens, B examples, P vectors of an example, D width.
"""

from copy import deepcopy

import pytest
import torch
from torch import distributed, nn

from isotrain.objectives.alignment import Alignment
from isotrain.objectives.anchor import Anchor
from isotrain.objectives.angle import AnglE
from isotrain.objectives.barlow import Barlow
from isotrain.objectives.base import Objective
from isotrain.objectives.cosent import CoSENT
from isotrain.objectives.cosreg import CosReg
from isotrain.objectives.dcl import DCL
from isotrain.objectives.gor import GOR
from isotrain.objectives.istar import IStar
from isotrain.objectives.koleo import KoLeo
from isotrain.objectives.sigreg import SIGReg
from isotrain.objectives.simcse import SimCSE
from isotrain.objectives.spectral import Spectral
from isotrain.objectives.supcon import SupCon
from isotrain.objectives.uniformity import Uniformity
from isotrain.objectives.vicreg import VICReg
from isotrain.objectives.visreg import VISReg
from isotrain.training.losses import ExtraLosses, read_points
from isotrain.types import Batch, ModelOutput
from tests.clouds import normal
from tests.processes import on_ranks

WIDTH, TOKENS, SIZES = 6, 5, (9, 8, 5)  # examples of each step: 5 and 4, 4 and 4, 3 and 2
BOTH = ["pooled", "layer_1/tokens"]
SHAPE = {"width": WIDTH, "n_blocks": 2}
SHARED = {"projection": "mlp", "temperature": 0.3}
MAKE = {
    "istar union": lambda: IStar(1.0, **SHAPE, reads=["all/tokens"], reference_rows=16),
    "istar each": lambda: IStar(-2.0, **SHAPE, reads=BOTH, clouds="each", reference_rows=64),
    "istar epoch": lambda: IStar(1.0, **SHAPE, reads=BOTH, reference="epoch", reference_rows=30),
    "cosreg": lambda: CosReg(1.0, BOTH),
    "gor": lambda: GOR(1.0, BOTH),
    "uniformity": lambda: Uniformity(1.0, BOTH),
    "alignment": lambda: Alignment(1.0, BOTH),
    "alignment pair": lambda: Alignment(1.0, positives="pair", positive_labels=[1, 1]),
    "vicreg": lambda: VICReg(1.0, BOTH),
    "barlow": lambda: Barlow(1.0, BOTH),
    "koleo": lambda: KoLeo(1.0, BOTH),
    "sigreg": lambda: SIGReg(1.0, BOTH, n_slices=16),
    "sigreg raw": lambda: SIGReg(1.0, BOTH, n_slices=16, rows="raw"),
    "visreg": lambda: VISReg(1.0, BOTH, n_slices=16),
    "spectral": lambda: Spectral(1.0, WIDTH, BOTH, n_components=2),
    "simcse": lambda: SimCSE(1.0, WIDTH, symmetric=True, **SHARED),
    "hard": lambda: SimCSE(1.0, WIDTH, positives="pair", hard_negative_weight=0.5, **SHARED),
    "dcl": lambda: DCL(1.0, WIDTH, **SHARED),
    "supcon": lambda: SupCon(1.0, WIDTH, n_views=2, **SHARED),
    "cosent": lambda: CoSENT(1.0),
    "angle": lambda: AnglE(1.0),
    "anchor": lambda: Anchor(1.0, BOTH),
    "anchor centred": lambda: Anchor(1.0, BOTH, centred=True),
}
VECTORS = {"hard": 4, "supcon": 1}  # of an example; else 2
over_objectives = pytest.mark.parametrize("name", MAKE)


def extra_of(*names):
    """`ExtraLosses` of some objectives, whose projections start alike in every process."""
    torch.manual_seed(3)
    objectives = {name: MAKE[name]() for name in names}
    return ExtraLosses(objectives)


class Bag(nn.Module):
    """An encoder of two blocks, pooled at two tokens; a second pass is turned a little."""

    def __init__(self, name):
        super().__init__()
        torch.manual_seed(0)
        self.n_vectors = VECTORS.get(name, 2)
        self.words = nn.Embedding(40, WIDTH)
        self.blocks = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])

    def forward(self, batch, view=0):
        """Hidden states, and the vectors of each example."""
        states = [self.words(batch.input_ids)]
        for block in self.blocks:
            states.append(states[-1] + torch.tanh(block(states[-1]) + 0.3 * view))
        first = states[-1][:, :2].reshape(2, len(batch.labels), 2, WIDTH)
        pooled_BPD = first.permute(1, 2, 0, 3).flatten(1, 2)[:, : self.n_vectors]
        return ModelOutput(tuple(states), pooled_BPD, pooled_BPD[:, 0])

    def views(self, extra, batch):
        n_views = max(objective.n_views for objective in extra.objectives.values())
        return [self(batch, view) for view in range(n_views)]


def losses_of(extra, views, batch):
    """What `extra` gives; the start is that of a bag with other weights."""
    start = Bag("").to(views[0].pooled.dtype).requires_grad_(False)
    for parameter in start.parameters():
        parameter += 0.3 * normal(*parameter.shape, seed=9).to(parameter.dtype)
    return extra(views, batch, start=start(batch))


def batch_of(number, n, rank=None):
    """Two sequences of unequal length for each of n examples, or those of one of two processes."""
    generator = torch.Generator().manual_seed(number)
    ids_QBT = torch.randint(1, 40, (2, n, TOKENS), generator=generator)
    length_QB1 = torch.randint(2, TOKENS + 1, (2, n, 1), generator=generator)
    mask_QBT = (torch.arange(TOKENS) < length_QB1).long()
    labels_B = torch.arange(n) % 3 % 2
    own = slice(None) if rank is None else slice(rank, None, 2)
    ids_AT, mask_AT = (x[:, own].reshape(-1, TOKENS) for x in (ids_QBT * mask_QBT, mask_QBT))
    zeros = torch.zeros_like(ids_AT)
    index_B = torch.arange(n)[own]
    return Batch(ids_AT, mask_AT, zeros, zeros, labels_B[own], index_B, n_sequences=2)


def trained(name, rank=None):
    """Losses, gradients and state over three steps; the weights stay as they are."""
    model, extra = Bag(name).double(), extra_of(name).double()
    whole = [(b, model(b)) for b in (batch_of(50 + number, 6) for number in range(4))]
    extra.prepare(0, lambda n: iter(whole))
    found = {}
    for number, n in enumerate(SIZES):
        batch = batch_of(number, n, rank)
        loss, logged = losses_of(extra, model.views(extra, batch), batch)
        model.zero_grad(), extra.zero_grad()
        loss.backward()
        found |= {f"{key} {number}": value.double() for key, value in logged.items()}
        for key, parameter in [*model.named_parameters(), *extra.named_parameters()]:
            if parameter.grad is not None:
                found[f"gradient {number} {key}"] = parameter.grad.clone()
        extra.observe()
    return found | {f"state {key}": x.clone() for key, x in extra.state_dict().items()}


def on_one_rank(rank, names):
    of_names = {name: trained(name, rank) for name in names}
    return of_names, counted(rank, SEVERAL), {name: counted(rank, [name]) for name in SEVERAL}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """All of them on two processes at once: processes take seconds to start."""
    return on_ranks(on_one_rank, 2, tmp_path_factory.mktemp("ranks"), list(MAKE))


@over_objectives
def test_two_processes_are_one(ranks, name):
    one, two = trained(name), [found[name] for found, *_ in ranks]
    assert one.keys() == two[0].keys() == two[1].keys()
    for key, expected in one.items():
        if not key.startswith("gradient"):
            for found in two:
                torch.testing.assert_close(found[key], expected, rtol=1e-9, atol=1e-11)
            continue
        mean = (two[0][key] + two[1][key]) / 2  # as gradients of processes are averaged
        torch.testing.assert_close(mean, expected, rtol=1e-9, atol=1e-11)
        if "words" in key or "projection" in key:
            assert float(expected.norm()) > 1e-5
    assert sum(key.startswith("gradient 0") for key in one) >= 3


@over_objectives
def test_a_step_of_two_micro_batches_is_observed_once_as_a_whole(name):
    model, batches = Bag(name), (batch_of(1, 4), batch_of(2, 3))
    parts, views = extra_of(name), []
    for batch in batches:
        views.append(model.views(parts, batch))
        losses_of(parts, views[-1], batch)
    before, objective = deepcopy(parts.state_dict()), parts.objectives[name]
    parts.observe()
    state = parts.state_dict()
    if "epoch" not in name and type(objective).observe is not Objective.observe:
        assert any(not torch.equal(state[key], before[key]) for key in state)
    else:
        assert all(torch.equal(state[key], before[key]) for key in state)
    if objective.remembers:
        read = [
            [read_points(view, batch, objective.read_points) for view in of_batch]
            for of_batch, batch in zip(views, batches, strict=True)
        ]
        joined = [
            [torch.cat(c).detach() for c in zip(*both, strict=True)]
            for both in zip(*read, strict=True)
        ]
        whole = extra_of(name).objectives[name]
        whole.observe(joined, torch.cat([batch.labels for batch in batches]))
        for key, value in whole.state_dict().items():
            torch.testing.assert_close(state[f"parts.{name}.{key}"], value, rtol=0, atol=0)
    elif "sigreg" in name or "visreg" in name:
        assert int(objective.n_steps) == 1
    twin = extra_of(name)
    twin.load_state_dict(state)
    first = [losses_of(extra, views[0], batches[0])[0] for extra in (twin, parts)]
    assert torch.equal(*first)


@pytest.mark.parametrize("n", [1, 2])
@over_objectives
def test_tiny_batches_are_finite_and_a_call_changes_no_state(name, n):
    model, extra, batch = Bag(name), extra_of(name), batch_of(3, n)
    for _ in range(2):
        before = deepcopy(extra.state_dict())
        loss, _logged = losses_of(extra, model.views(extra, batch), batch)
        model.zero_grad()
        loss.backward()
        assert bool(torch.isfinite(loss))
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
        assert all(torch.equal(x, before[key]) for key, x in extra.state_dict().items())
        extra.observe()


SEVERAL = ("gor", "uniformity", "vicreg", "alignment", "istar each")  # all read BOTH


def counted(rank, names):
    """Collectives of one step of several objectives, forward and backward, and its losses."""
    counts, during = {"forward": 0, "backward": 0}, ["forward"]

    def counting(original):
        def call(*args, **options):
            counts[during[0]] += 1
            return original(*args, **options)

        return call

    model, extra, batch = Bag("").double(), extra_of(*names).double(), batch_of(0, 9, rank)
    views = model.views(extra, batch)
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("all_gather", "all_reduce"):
            patch.setattr(distributed, kind, counting(getattr(distributed, kind)))
        loss, logged = extra(views, batch)
        during[0] = "backward"
        loss.backward()
    return counts, logged


def test_objectives_of_a_step_share_what_is_gathered(ranks):
    """And each has the loss that it has alone, bit by bit."""
    for _, (counts, logged), alone in ranks:
        # order of examples and of tokens (2 each), labels, and two read points of two views
        assert counts["forward"] == 2 + 2 + 1 + 2 * 2
        assert counts["forward"] == max(one["forward"] for one, _ in alone.values())
        assert counts["backward"] == sum(one["backward"] for one, _ in alone.values())
        for name, (_, of_one) in alone.items():
            assert torch.equal(logged[f"train/{name}"], of_one[f"train/{name}"])
