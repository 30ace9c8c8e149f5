"""The rows that the monitor should measure, found again by plain loops over batches.

N rows, D width.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor

from isotrain.geometry.rows import hash_ids
from isotrain.training.monitor.callback import RunMonitor

NO_WORD = -1


class Rows(NamedTuple):
    """The rows of one cloud that hash lowest, in the order of their hashes."""

    x: Tensor  # [N, D]
    ids: Tensor  # (index · 16 + sequence) · 65536 + position
    labels: Tensor
    words: Tensor  # token id; −1 where a row is no token
    sentences: Tensor


def monitor_of(experiment: Any) -> RunMonitor:
    """The monitor of an experiment."""
    (monitor,) = (c for c in experiment.trainer.callbacks if isinstance(c, RunMonitor))
    return monitor


def validated(experiment: Any) -> dict[str, float]:
    """The isotropy values of one evaluation by the experiment's own trainer."""
    experiment.trainer.validate(experiment.module, datamodule=experiment.data, verbose=False)
    newest = monitor_of(experiment).newest
    return {key: value for key, value in newest.items() if key.startswith("isotropy/")}


@torch.no_grad()
def dev_passes(experiment: Any) -> list[tuple[Any, Any]]:
    """Batches of dev and what the model gives for them."""
    model = experiment.module.model.eval()
    passes = [(batch, model(batch)) for batch in experiment.data.val_dataloader()]
    model.train()
    return passes


def rows_of(passes: Iterable[tuple[Any, Any]], max_rows: int = 10**6) -> dict[str, Rows]:
    """Every cloud of some forward passes by `<where>/<view>`."""
    all_facts: dict[str, list[tuple[Any, ...]]] = {}  # what is known of each row
    clouds: dict[str, list[Tensor]] = {}
    for batch, output in passes:
        sequences, tokens = [], []
        for a, mask in enumerate(batch.attention_mask.tolist()):
            q, b = divmod(a, len(batch.index))
            sentence, label = int(batch.index[b]) * 16 + q, batch.labels[b].item()
            sequences.append((sentence * 65536, label, NO_WORD, sentence))
            words = batch.input_ids[a].tolist()
            places = [(a, t) for t, is_real in enumerate(mask) if is_real]
            tokens += [(p, (sentence * 65536 + p[1], label, words[p[1]], sentence)) for p in places]
        parts: dict[str, tuple[Tensor, list[Any]]] = {}
        a_N, t_N = torch.tensor([place for place, _ in tokens]).T
        of_tokens = [facts for _, facts in tokens]
        for number, hidden in enumerate(output.hidden_states):
            layer = f"layer_{number:02d}"
            means = [
                hidden[a, [t for (at, t), _ in tokens if at == a]].double().mean(dim=0)
                for a in range(len(sequences))
            ]
            parts[f"{layer}/cls"] = hidden[:, 0], sequences
            parts[f"{layer}/tokens"] = hidden[a_N, t_N], of_tokens
            parts[f"{layer}/mean"] = torch.stack(means), sequences
        for site, rows in output.site_embeddings.items():
            if site == "pooled":
                facts = _of_vectors(batch, len(rows.before))
            elif len(rows.before) == len(of_tokens):
                facts = of_tokens
            else:  # rows=no_special
                facts = [known for (a, t), known in tokens if not batch.special_mask[a, t]]
            parts[f"{site}/before"] = rows.before, facts
            parts[f"{site}/after"] = rows.after, facts
        for place, (x_ND, facts) in parts.items():
            assert len(x_ND) == len(facts)
            all_facts.setdefault(place, []).extend(facts)
            clouds.setdefault(place, []).append(x_ND.detach().float())
    return {
        place: _lowest(torch.cat(clouds[place]), all_facts[place], max_rows) for place in clouds
    }


def _of_vectors(batch: Any, n_rows: int) -> list[Any]:
    """What is known of pooled rows: the vectors of an example side by side."""
    n = n_rows // len(batch.index)
    return [
        (int(index) * 16 * 65536 + vector, label.item(), NO_WORD, int(index))
        for index, label in zip(batch.index, batch.labels, strict=True)
        for vector in range(n)
    ]


def _lowest(x_ND: Tensor, facts: list[Any], max_rows: int) -> Rows:
    id_N, label_N, word_N, sentence_N = (torch.tensor(c) for c in zip(*facts, strict=True))
    hashes = hash_ids(id_N).tolist()
    kept = sorted(range(len(hashes)), key=hashes.__getitem__)[:max_rows]
    return Rows(x_ND[kept], id_N[kept], label_N[kept], word_N[kept], sentence_N[kept])


def plain_trainer(folder, monitor, logger, **more):
    """A Trainer of a user's own, with a sanity check."""
    return pl.Trainer(
        **{"max_steps": 4, "val_check_interval": 2} | more,
        accelerator="cpu",
        num_sanity_val_steps=2,
        log_every_n_steps=1,
        callbacks=[monitor],
        logger=logger,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
