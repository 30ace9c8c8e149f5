"""Which rows are watched: those that hash lowest, for any batching and number of processes.

A sequences, T tokens, L blocks, D width.
"""

from dataclasses import astuple, replace

import pytest
import pytorch_lightning as pl
import torch

from isotrain.runs.keys import MEASURED, VIEWS
from isotrain.training.monitor.callback import RunMonitor
from isotrain.training.monitor.sampling import CloudSampler
from isotrain.types import Batch, ModelOutput, SiteEmbeddings
from tests.dev_rows import NO_WORD, dev_passes, monitor_of, plain_trainer, rows_of, validated
from tests.processes import on_ranks

LAYER = (
    *("isotropy=cluster_pca", "isotropy.n_clusters=2", "metric=[isoscore]", "monitor.map_rows=0"),
)
WORDS = 50


def n_bytes(rows):
    """Memory of the kept embeddings, their ids and facts."""
    kept = (*rows._views.values(), *rows._sites.values())
    return sum(x.untyped_storage().nbytes() for one in kept for x in one._columns)


class Seen(pl.Callback):
    """The clouds that the monitor holds when an evaluation ends, and their bytes."""

    def __init__(self, monitor):
        self.monitor, self.clouds, self.n_bytes = monitor, [], 0

    def on_validation_epoch_end(self, trainer, pl_module):
        """Runs before the monitor, which lets go of its rows."""
        rows = self.monitor._rows
        self.clouds.append({cloud.name: cloud for cloud in rows.clouds()})
        self.n_bytes = n_bytes(rows)


def seen_by(experiment):
    seen = Seen(monitor_of(experiment))
    experiment.trainer.callbacks.insert(0, seen)
    return seen


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize(
    "task",
    [
        ("task=rte", "site=[layer_1,pooled]"),
        ("task=stsb", "task.form=bi", "pooling=mean", "site=[pooled]"),
        ("task=wic", "pooling=spans", "task.prompt=none", "site=[tokens,pooled]"),
        ("task=rte", "pooling=mean", "rows=no_special", "site=[layer_1,tokens]"),
    ],
    ids=["cross", "bi", "spans", "no_special"],
)
def test_the_rows_of_smallest_hash_with_what_is_known_of_them(built, task, size):
    budget = 25  # fewer than there are of any kind
    experiment = built(*LAYER, *task, f"monitor.max_rows={budget}", f"data.eval_batch_size={size}")
    seen = seen_by(experiment)
    validated(experiment)
    expected = rows_of(dev_passes(experiment), budget)
    assert set(seen.clouds[0]) == set(expected)
    for place, cloud in seen.clouds[0].items():
        rows = expected[place]
        assert cloud.id_N.tolist() == rows.ids.tolist(), place
        assert len(cloud.id_N) == budget
        torch.testing.assert_close(cloud.x_ND, rows.x, rtol=1e-6, atol=1e-6)
        assert cloud.label_N.tolist() == rows.labels.tolist()
        words = None if cloud.token_N is None else cloud.token_N.tolist()
        has_words = cloud.view != "cls" and NO_WORD not in rows.words
        assert words == (rows.words.tolist() if has_words else None)
        assert cloud.is_owned == (place.startswith("pooled") and task[0] == "task=rte")


class Calls(pl.loggers.logger.DummyLogger):
    """Remembers what it is given."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def log_metrics(self, metrics, step=None):
        """One row."""
        self.rows.append((step, dict(metrics)))


def test_a_sanity_check_is_not_an_evaluation(built, tmp_path):
    experiment = built(*LAYER, "task=rte")
    calls, logger = [], Calls()
    metrics = {"n": lambda x: calls.append(len(x)) or x.sum().double()}
    monitor = RunMonitor(metrics, 1000, folder=tmp_path, map_rows=8)
    more = {"max_steps": 1, "limit_val_batches": 0.5, "val_check_interval": 1.0}
    trainer = plain_trainer(tmp_path, monitor, logger, **more)
    checked = []

    class Note(pl.Callback):
        def on_sanity_check_end(self, trainer, pl_module):
            checked.append((len(calls), len(logger.rows), dict(monitor.newest)))

    trainer.callbacks.append(Note())
    trainer.fit(experiment.module, datamodule=experiment.data)
    assert checked == [(0, 0, {})], "there was a check, and nothing was measured in it"
    assert monitor.newest == {}
    assert not (tmp_path / "snapshots").exists()
    assert monitor._reference == {}
    trainer.validate(experiment.module, datamodule=experiment.data, verbose=False)
    assert len(calls) == 3 * len(MEASURED) + 2, "the same monitor measures"


# --- memory ------------------------------------------------------------------------------------


def synthetic(first, n, n_tokens=6, width=16, n_blocks=2, seed=0):
    """A batch of `n` examples from number `first`, and random states for it."""
    generator = torch.Generator().manual_seed(seed + first)
    ids_AT = torch.randint(0, WORDS, (n, n_tokens), generator=generator)
    length_A1 = torch.randint(1, n_tokens + 1, (n, 1), generator=generator)
    mask_AT = (torch.arange(n_tokens) < length_A1).long()
    index = torch.arange(first, first + n)
    labels = index % 3
    batch = Batch(ids_AT, mask_AT, torch.zeros_like(ids_AT), 1 - mask_AT, labels, index)
    states = tuple(
        torch.randn(n, n_tokens, width, generator=generator) for _ in range(n_blocks + 1)
    )
    before = states[-1][:, 0]
    site = SiteEmbeddings(before, 2.0 * before, index * (1 << 20), labels)
    return batch, ModelOutput(states, before[:, None], before[:, :1], {"pooled": site})


def offered(n_examples, size, max_rows, bare=()):
    rows, most = CloudSampler(max_rows, VIEWS, bare), 0
    for first in range(0, n_examples, size):
        rows.offer(*synthetic(first, min(size, n_examples - first)))
        most = max(most, n_bytes(rows))
    return rows, most


@pytest.mark.parametrize("bare", [(), ("pooled",)])
def test_memory_is_the_budget_whatever_the_size_of_the_data(bare):
    """Documented: max_rows·D·4 bytes for each cloud; ids, hashes, labels and tokens come beside."""
    found = {n: offered(n, 500, 64, bare) for n in (1_000, 100_000)}
    n_clouds = 3 * len(VIEWS) + (1 if bare else 2)
    for rows, most in found.values():
        assert most == 64 * (16 * 4 * n_clouds + 8 * (3 * (len(VIEWS) + 1) + 1))
        assert len(list(rows.clouds())) == n_clouds
    assert int(found[100_000][0].frequency_V.sum()) > 50 * int(found[1_000][0].frequency_V.sum())


# --- processes ---------------------------------------------------------------------------------


CASES = ((9, (6, 2, 5)), (1000, (7, 1)), (30, (1, 40)))  # budget, examples of each batch


def of_process(rank):
    """Rank r watches every second batch, as in an evaluation; the rows that come out."""
    found = []
    for max_rows, sizes in CASES:
        rows, first = CloudSampler(max_rows, VIEWS), 0
        for number, n in enumerate(sizes):
            if rank is None or number % 2 == rank:
                rows.offer(*synthetic(first, n))
            first += n
        if rank is not None:
            rows.exchange()
        found.append(([astuple(cloud) for cloud in rows.clouds()], rows.frequency_V))
    return found


def test_two_processes_watch_what_one_would(tmp_path):
    for of_rank in on_ranks(of_process, 2, tmp_path):
        for (clouds, frequency), (found, of_words) in zip(of_process(None), of_rank, strict=True):
            assert len(found) == len(clouds) == 3 * len(VIEWS) + 2
            assert torch.equal(of_words, frequency)
            for one, two in zip(clouds, found, strict=True):
                for x, y in zip(one, two, strict=True):
                    assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y


def without_site_embeddings(rank):
    """Each rank watches a batch; no row of rank 1 is one of the site, as with rows=no_special."""
    rows = CloudSampler(30, VIEWS)
    for number in (0, 1) if rank is None else (rank,):
        batch, output = synthetic(4 * number, 4)
        if number == 1:
            none = SiteEmbeddings(*(x[:0] for x in output.site_embeddings["pooled"][:4]))
            output = replace(output, site_embeddings={"pooled": none})
        rows.offer(batch, output)
    if rank is not None:
        rows.exchange()
    return [(cloud.name, cloud.x_ND) for cloud in rows.clouds()]


def test_a_process_without_rows_of_a_site_takes_part(tmp_path):
    for found in on_ranks(without_site_embeddings, 2, tmp_path):
        for (name, x_ND), (of_one, expected_ND) in zip(
            found, without_site_embeddings(None), strict=True
        ):
            assert name == of_one
            assert torch.equal(x_ND, expected_ND)
    assert dict(found)["pooled/after"].shape == (4, 16)


def test_any_token_id_is_counted():
    """Also one beyond the size of a tokenizer, in a later batch."""
    rows = CloudSampler(30, VIEWS)
    for first, token in ((0, 3), (4, 70_000)):
        batch, output = synthetic(first, 4)
        rows.offer(replace(batch, input_ids=torch.full_like(batch.input_ids, token)), output)
    assert rows.frequency_V.nonzero().flatten().tolist() == [3, 70_000]
