"""The isotropy of every layer of MiniLM on real text, with N and sampling error.

    ISOTRAIN_DATA_DIR=<folder> python benchmarks/real_text.py > docs/minilm_on_real_text.md

Reads <folder>/snli/dev.jsonl and <folder>/wikitext-2/valid.txt. A row is a token (specials and pads
left out) of a sentence or paragraph; texts are taken once each, chosen by hash. Sampling error:
the standard deviation of each value over random halves of the texts. With half of the texts left
out that estimates the standard error of the whole, also for metrics that are no smooth function of
means (ln I(W), TwoNN), and it keeps the tokens of a text together, which are not independent.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from isotrain.encoders.huggingface import load_minilm
from isotrain.geometry.rows import hash_ids
from isotrain.metrics.explained_variance import explained_variance
from isotrain.metrics.intra_sentence_similarity import intra_sentence_similarity
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.isoscore_corrected import isoscore_corrected
from isotrain.metrics.lid import lid
from isotrain.metrics.max_explainable_variance import max_explainable_variance
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.outlier_dims import outlier_dims
from isotrain.metrics.participation_ratio import participation_ratio
from isotrain.metrics.partition import partition
from isotrain.metrics.partition_null import partition_null
from isotrain.metrics.self_similarity import self_similarity
from isotrain.metrics.suite import suite
from isotrain.metrics.two_nn import two_nn
from isotrain.types import Batch

OF_ROWS = {
    "isoscore": isoscore,
    "isoscore_corrected": isoscore_corrected,
    "participation_ratio": participation_ratio,
    "explained_variance": partial(explained_variance, n_directions=[1]),
    "mean_cosine": mean_cosine,
    "partition": partition,
    "partition_null": partition_null,
    "outlier_dims": partial(outlier_dims, n_top=1),
    "two_nn": two_nn,
    "lid": partial(lid, aggregate="harmonic"),
}
OF_WORDS = {
    "self_similarity": self_similarity,
    "max_explainable_variance": max_explainable_variance,
}
OF_TEXTS = {"intra_sentence_similarity": intra_sentence_similarity}
COLUMNS = {  # heading: (key, digits)
    "IsoScore": ("isoscore", 3),
    "corrected": ("isoscore_corrected", 3),
    "PR": ("participation_ratio", 1),
    "EV₁": ("explained_variance_1", 3),
    "mean cosine": ("mean_cosine", 3),
    "ln I(W)": ("partition", 2),
    "its null": ("partition_null_median", 2),
    "top dim": ("outlier_dims_index_1", 0),
    "its share": ("outlier_dims_share_1", 3),
    "TwoNN": ("two_nn", 1),
    "LID, harm.": ("lid", 1),
    "self-sim.": ("self_similarity_adjusted", 3),
    "intra-sent.": ("intra_sentence_similarity_above_shuffled", 3),
    "MEV": ("max_explainable_variance_adjusted", 3),
}


def texts_of(folder: Path) -> Iterator[tuple[str, list[str]]]:
    with (folder / "snli" / "dev.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    yield "SNLI, dev sentences", [r[side] for r in rows for side in ("premise", "hypothesis")]
    paragraphs = (folder / "wikitext-2" / "valid.txt").read_text(encoding="utf-8").splitlines()
    whole = [p.strip() for p in paragraphs if p.strip() and not p.strip().startswith("=")]
    yield "WikiText-2, validation paragraphs", whole


def chosen(texts: list[str], n: int) -> list[str]:
    unique = sorted(set(texts), key=lambda text: hashlib.sha256(text.encode()).digest())
    return unique[:n]


@torch.no_grad()
def clouds(encoder, texts: list[str], max_length: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """Rows `[N, D]` of each layer, with the word-piece and the text of each row."""
    layers: list[list[Tensor]] = [[] for _ in range(encoder.n_blocks + 1)]
    words, owners = [], []
    for first in range(0, len(texts), 32):
        some = texts[first : first + 32]
        encoded = encoder.tokenizer(
            some,
            truncation=True,
            max_length=max_length,
            padding=True,
            return_special_tokens_mask=True,
            return_token_type_ids=True,
            return_tensors="pt",
        )
        number = torch.arange(first, first + len(some))
        batch = Batch(
            encoded["input_ids"],
            encoded["attention_mask"],
            encoded["token_type_ids"],
            encoded["special_tokens_mask"],
            labels=number,
            index=number,
        )
        real = (batch.special_mask == 0) & (batch.attention_mask == 1)
        for kept, hidden in zip(layers, encoder(batch, {}).hidden_states, strict=True):
            kept.append(hidden[real])
        words.append(batch.input_ids[real])
        owners.append(number[:, None].expand_as(real)[real])
    return [torch.cat(rows) for rows in layers], torch.cat(words), torch.cat(owners)


def measured(x: Tensor, words: Tensor, owners: Tensor) -> dict[str, float]:
    found = suite(x, OF_ROWS)
    found |= suite(x, OF_WORDS, groups=words) | suite(x, OF_TEXTS, groups=owners)
    return {key: float(value) for key, value in found.items()}


def halves(owners: Tensor, n_halves: int) -> Iterator[Tensor]:
    """Masks of the rows of random halves of the texts, each text in half of them."""
    texts = owners.unique()
    generator = torch.Generator().manual_seed(0)
    for _ in range(n_halves // 2):
        chosen = texts[torch.randperm(len(texts), generator=generator)[: len(texts) // 2]]
        half = torch.isin(owners, chosen)
        yield half
        yield ~half


def spread(parts: list[dict[str, float]]) -> dict[str, float]:
    """Standard deviation of each value over the parts."""
    return {key: statistics.stdev(part[key] for part in parts) for key in parts[0]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=600, help="texts of each corpus")
    parser.add_argument("--rows", type=int, default=6000, help="rows at most, chosen by hash")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--halves", type=int, default=20, help="of the texts, for the error")
    arguments = parser.parse_args()
    folder = Path(os.environ.get("ISOTRAIN_DATA_DIR", "."))
    wanted = ("snli/dev.jsonl", "wikitext-2/valid.txt")
    if absent := [name for name in wanted if not (folder / name).is_file()]:
        parser.error(f"ISOTRAIN_DATA_DIR={folder} has no {', '.join(absent)}; export the right one")
    if arguments.rows < 1000 or arguments.halves < 4:
        parser.error("--rows from 1000 and --halves from 4: words need five occurrences in a half")
    torch.manual_seed(0)
    began = time.time()
    encoder = load_minilm(
        "sentence-transformers/all-MiniLM-L6-v2",
        "main",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ).eval()
    print("# MiniLM on real text\n")
    command = ["ISOTRAIN_DATA_DIR=<folder>", "python", "benchmarks/real_text.py", *sys.argv[1:]]
    print(f"`{' '.join(command)}`")
    print(f"\nEncoder: {encoder.source_id}; D = {encoder.width}.")
    print("Rows are tokens without specials; layer 0 is the embedding output, where a word at one")
    print("place is one vector however often it comes. Behind each value its standard error, from")
    print(
        "random halves of the texts. Self-similarity and MEV: less their baseline; intra-sentence:"
    )
    print("above shuffled sentences.")
    for title, texts in texts_of(folder):
        texts = chosen(texts, arguments.texts)
        layers, words, owners = clouds(encoder, texts, arguments.max_length)
        kept = hash_ids(torch.arange(len(words))).argsort()[: arguments.rows].sort().values
        words, owners = words[kept], owners[kept]
        print(f"\n## {title}: {len(texts)} texts, N = {len(kept):,} of {len(layers[0]):,} tokens\n")
        print("| layer | " + " | ".join(COLUMNS) + " |")
        print("| --- |" + " --- |" * len(COLUMNS))
        for number, rows in enumerate(layers):
            x = rows[kept]
            whole = measured(x, words, owners)
            parts = [
                measured(x[half], words[half], owners[half])
                for half in halves(owners, arguments.halves)
            ]
            error = spread(parts)
            cells = []
            for key, digits in COLUMNS.values():
                after = f" ± {error[key]:.{digits}f}" if digits and "null" not in key else ""
                cells.append(f"{whole[key]:.{digits}f}{after}")
            print(f"| {number} | " + " | ".join(cells) + " |", flush=True)
    print(f"\nMade in {time.time() - began:.0f} s with torch {torch.__version__}.")


if __name__ == "__main__":
    main()
