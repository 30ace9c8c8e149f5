"""Encoding of sentences beside sentence-transformers, and the memory that it takes.

MiniLM, the different sentences of STS-B test, last layer, mean over all tokens; equal batch size,
threads and cut. Both contenders tokenise, sort by length and encode; ours also writes its rows to
a file. They take turns; ratios are of CPU time, which other processes of the machine disturb less
than the time that passes. Memory is the peak of what a process of its own allocates while it
encodes 2,000 sentences and eight times as many.

    ISOTRAIN_DATA_DIR=... .venv/bin/python benchmarks/bench_encode.py [--rounds 5] [--threads 1]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from timing import head, interleaved, ms, peak_mb, ratio, row, setting

from isotrain.analysis.data_sets import PLACES, sts_pairs
from isotrain.analysis.encode import encode_rows, tokenise, whole_sentences
from isotrain.analysis.types import Subject
from isotrain.encoders.huggingface import load_encoder
from isotrain.encoders.on_disk import packaged_folder
from isotrain.tasks.data.sources import LocalSource

BATCH, LENGTH = 32, 128
SIZES = (2_000, 16_000)  # sentences of the two corpora


def sentences() -> list[str]:
    source = LocalSource(os.environ["ISOTRAIN_DATA_DIR"])
    return sts_pairs(source, *PLACES["stsb"]).sentences


def ours() -> Callable[[list[str], Path], np.ndarray]:
    """Our encoder as a function of sentences and a folder for its file."""
    folder = packaged_folder()
    assert folder is not None, "install isotrain[demo]"
    encoder = load_encoder(str(folder)).eval()

    def encode(texts: list[str], rows: Path) -> np.ndarray:
        subject = Subject(encoder, None, 0, BATCH, LENGTH, rows)  # type: ignore[arg-type]
        tokens = tokenise(encoder.tokenizer, texts, LENGTH)
        return encode_rows(subject, tokens, whole_sentences(tokens), [encoder.n_blocks])[0]

    return encode


def theirs() -> Callable[[list[str]], np.ndarray]:
    """The encode method of sentence-transformers, with our cut."""
    model = SentenceTransformer(str(packaged_folder()), device="cpu")
    model.max_seq_length = LENGTH

    def encode(texts: list[str]) -> np.ndarray:
        return np.asarray(model.encode(texts, batch_size=BATCH, show_progress_bar=False))

    return encode


def cpu_seconds(function: Callable[[], object]) -> float:
    """The CPU time of a call, of all its threads."""
    began = time.process_time()
    function()
    return time.process_time() - began


def compare(rounds: int) -> None:
    texts, encode, encode_theirs = sentences(), ours(), theirs()
    found: dict[str, np.ndarray] = {}

    def own() -> None:
        with tempfile.TemporaryDirectory() as folder:
            found["isotrain"] = np.array(encode(texts, Path(folder)))

    def other() -> None:
        found["sentence-transformers"] = encode_theirs(texts)

    times = interleaved(rounds, {"isotrain": own, "theirs": other}, seconds=cpu_seconds)
    unit = found["isotrain"]
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    error = np.abs(unit - found["sentence-transformers"]).max()
    setting(f"{len(texts):,} sentences, batch {BATCH}", rounds)
    print(f"largest difference of an entry of unit vectors: {error:.1e}\n")
    head("isotrain, s", "sentence-transformers, s", "speed relative to it (quartiles)")
    own_s, other_s = (f"{ms(times, name) / 1e3:.2f}" for name in times)
    row(own_s, other_s, ratio(times, "theirs", "isotrain"))


def print_memory(n: int) -> None:
    """The peak while `n` sentences are encoded, beyond what the process had before."""
    own = sentences()
    texts = [own[i % len(own)] for i in range(n)]
    encode = ours()
    with tempfile.TemporaryDirectory() as folder:
        encode(texts[:64], Path(folder) / "first")
        before, peak = peak_mb(lambda: encode(texts, Path(folder) / "rows"))
    row(f"{n:,}", f"{before:.0f}", f"{peak:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)  # in a process of its own
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.memory_of:
        print_memory(arguments.memory_of)
        return
    compare(arguments.rounds)
    print()
    head("sentences", "MB before", "MB at most")
    for n in SIZES:
        subprocess.run(
            [sys.executable, __file__, "--threads", f"{arguments.threads}", "--memory-of", f"{n}"],
            check=True,
        )


if __name__ == "__main__":
    main()
