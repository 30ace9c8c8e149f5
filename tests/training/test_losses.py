"""What objectives are given to read, and when they remember or are shown training rows."""

from types import SimpleNamespace

import pytest
import torch

from isotrain.config.read_points import read_point
from isotrain.model.pooling import mean_pool
from isotrain.objectives.base import Objective
from isotrain.training.losses import ExtraLosses, read_points
from isotrain.types import Batch, ModelOutput, SiteEmbeddings

B, Q, T, D = 3, 2, 4, 5
ENCODER = SimpleNamespace(n_blocks=6, is_causal=False)


def batch_and_output(seed=0, n_layers=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    hidden = tuple(
        torch.randn(Q * B, T, D, generator=generator, dtype=torch.float64).to(dtype)
        for _ in range(n_layers)
    )
    lengths = torch.tensor([4, 2, 3, 1, 4, 2])
    mask = (torch.arange(T) < lengths[:, None]).long()
    zeros = torch.zeros(Q * B, T, dtype=torch.long)
    index = torch.tensor([7, 2, 9])
    batch = Batch(zeros, mask, zeros, zeros, torch.tensor([0, 1, 0]), index, n_sequences=Q)
    pooled = hidden[-1][:, 0].reshape(Q, B, D).transpose(0, 1)
    rows = pooled.flatten(0, 1)
    site = SiteEmbeddings(rows * 2, rows, torch.arange(len(rows)), torch.zeros(len(rows)))
    return batch, ModelOutput(hidden, pooled, torch.zeros(B, 1), {"pooled": site})


def test_every_read_point_holds_what_its_name_says():
    batch, output = batch_and_output()
    names = ["pooled", "before", "layer_1/cls", "layer_0/tokens", "layer_2/mean", "layer_1/last"]
    pooled, before, cls, tokens, mean, last = read_points(output, batch, map(read_point, names))
    assert torch.equal(pooled, output.pooled)
    assert torch.equal(before, 2 * output.pooled)
    for example in range(B):
        for sequence in range(Q):
            a = sequence * B + example  # sequence-major
            assert torch.equal(cls[example, sequence], output.hidden_states[1][a, 0])
            expected = mean_pool(output.hidden_states[2], batch.attention_mask)[a]
            assert torch.equal(mean[example, sequence], expected)
            t = int(batch.attention_mask[a].sum()) - 1
            assert torch.equal(last[example, sequence], output.hidden_states[1][a, t])
    real = [
        output.hidden_states[0][a, t]
        for a in range(Q * B)
        for t in range(T)
        if batch.attention_mask[a, t]
    ]
    assert torch.equal(tokens, torch.stack(real))


def test_all_is_every_block_and_not_the_embeddings():
    batch, output = batch_and_output()
    clouds = read_points(output, batch, [read_point("all/tokens")])
    one, two = (read_points(output, batch, [read_point(f"layer_{k}/tokens")])[0] for k in (1, 2))
    assert len(clouds) == 2
    assert torch.equal(clouds[0], one)
    assert torch.equal(clouds[1], two)


def test_half_precision_is_widened_and_double_stays():
    for dtype, expected in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        batch, output = batch_and_output(dtype=dtype)
        found = read_points(
            output, batch, map(read_point, ("pooled", "all/tokens", "layer_1/mean"))
        )
        assert {cloud.dtype for cloud in found} == {expected}


class Remembers(Objective):
    """Its loss is the mean; it keeps what it observes and what a pass shows."""

    n_views, reads = 2, ("pooled", "layer_1/tokens")

    def __init__(self):
        super().__init__(weight=0.5)
        self.seen, self.passes, self.autocast = [], [], []

    def forward(self, views, labels):
        self.counters = {"n": torch.tensor(float(len(views)))}
        self.autocast.append(torch.is_autocast_enabled("cpu"))
        return sum(cloud.mean() for clouds in views for cloud in clouds)

    def observe(self, views, labels):
        self.seen.append((views, labels))

    def asks_for_pass(self, epoch):
        return epoch == 1

    def prepare(self, epoch, reads):
        self.passes.append((epoch, next(iter(reads))))


class One(Objective):
    """A first view alone, and the defaults for all else."""

    def __init__(self):
        super().__init__(weight=-2.0)

    def forward(self, views, labels):
        return views[0][0].sum() + labels.sum()


def test_the_sum_is_weighted_and_each_part_is_named():
    batch, first = batch_and_output(0)
    _, second = batch_and_output(1)
    extra = ExtraLosses({"mean": (remembers := Remembers()), "one": One()})
    assert list(extra.parts) == ["mean", "one"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total, logged = extra([first, second], batch)
    means = sum(
        cloud.mean()
        for v in (first, second)
        for cloud in read_points(v, batch, map(read_point, Remembers.reads))
    )
    one = first.pooled.sum() + 1
    assert remembers.autocast == [False]
    assert set(logged) == {"train/mean", "train/mean/n", "train/one"}
    assert float(logged["train/one"]) == pytest.approx(float(one))
    assert float(total) == pytest.approx(float(0.5 * means - 2.0 * one))


def test_memory_is_reported_once_per_step_with_the_rows_of_all_its_micro_batches():
    extra = ExtraLosses({"mean": (remembers := Remembers()), "one": One()})
    several = [batch_and_output(seed) for seed in range(2)]
    for batch, output in several:
        extra([output, output], batch)
    assert remembers.seen == []
    extra.observe()
    extra.observe()  # nothing new
    ((views, labels),) = remembers.seen
    assert labels.tolist() == [0, 1, 0] * 2
    assert torch.equal(views[1][0], torch.cat([output.pooled for _, output in several]))
    assert len(views[0][1]) == sum(int(b.attention_mask.sum()) for b, _ in several)
    assert not any(cloud.requires_grad for clouds in views for cloud in clouds)


def test_a_pass_is_made_only_where_it_is_asked_for():
    extra = ExtraLosses({"mean": (remembers := Remembers()), "one": One()})
    batch, output = batch_and_output()
    made = []

    def passes(n):
        made.append(n)
        yield batch, output

    extra.prepare(0, passes)
    assert made == []
    extra.prepare(1, passes)
    ((epoch, clouds),) = remembers.passes
    assert (epoch, made) == (1, [None])
    assert torch.equal(clouds[0], output.pooled)


class Counts(Remembers):
    """It counts the steps alone."""

    remembers = False


def test_rows_that_an_objective_does_not_remember_are_not_kept():
    extra = ExtraLosses({"mean": (counts := Counts()), "one": One()})
    for seed in range(2):
        batch, output = batch_and_output(seed)
        extra([output, output], batch)
    assert [len(tensors) for tensors in extra.recent.tensors["mean"]] == [1, 1]  # labels alone
    extra.observe()
    extra.observe()
    ((views, _),) = counts.seen
    assert views == []
