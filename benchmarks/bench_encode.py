"""Encoding of sentences beside sentence-transformers, and the memory that it takes.

MiniLM, the different sentences of STS-B test, last layer, mean over all tokens; equal batch size,
threads and cut. Both contenders tokenise, sort by length and encode; ours also writes its rows to
a file. They take turns, each first in every other round; ratios are medians over the rounds, of
the time that passed and of CPU time, which other processes of the machine disturb less.
Memory is the peak of what a process of its own allocates (RssAnon: without the pages of files,
which the system may drop), while it encodes 2,000 sentences and eight times as many.

    ISOTRAIN_DATA_DIR=... .venv/bin/python benchmarks/bench_encode.py [--rounds 5] [--threads 1]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

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
        subject = Subject(encoder, None, 0, BATCH, LENGTH, rows, lambda text: None)  # type: ignore[arg-type]
        tokens = tokenise(encoder.tokenizer, texts, LENGTH)
        return encode_rows(subject, "rows", tokens, whole_sentences(tokens), [encoder.n_blocks])[0]

    return encode


def theirs() -> Callable[[list[str]], np.ndarray]:
    """The encode method of sentence-transformers, with our cut."""
    model = SentenceTransformer(str(packaged_folder()), device="cpu")
    model.max_seq_length = LENGTH

    def encode(texts: list[str]) -> np.ndarray:
        return np.asarray(model.encode(texts, batch_size=BATCH, show_progress_bar=False))

    return encode


def compare(rounds: int) -> None:
    texts, encode, encode_theirs = sentences(), ours(), theirs()
    clocks = {"passed": time.perf_counter, "CPU": time.process_time}
    names = ("isotrain", "sentence-transformers")
    times: dict[tuple[str, str], list[float]] = {(c, n): [] for c in clocks for n in names}
    found: dict[str, np.ndarray] = {}
    for number in range(rounds + 1):  # the first warms up
        for name in names[:: 1 if number % 2 else -1]:
            with tempfile.TemporaryDirectory() as folder:
                began = {clock: now() for clock, now in clocks.items()}
                rows = encode(texts, Path(folder)) if name == names[0] else encode_theirs(texts)
                for clock, now in clocks.items():
                    times[clock, name].append(now() - began[clock])
                found[name] = np.array(rows)
    unit = found[names[0]] / np.linalg.norm(found[names[0]], axis=1, keepdims=True)
    print(
        f"\n{len(texts):,} sentences, batch {BATCH}, {torch.get_num_threads()} threads, {rounds} "
        "rounds; largest difference of an entry of unit vectors "
        f"{np.abs(unit - found[names[1]]).max():.1e}\n"
    )
    print("| s | isotrain | sentence-transformers | speed relative to it | by round |")
    print("| --- | --- | --- | --- | --- |")
    for clock in clocks:
        own, other = (times[clock, name][1:] for name in names)
        ratios = [b / a for a, b in zip(own, other, strict=True)]
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        medians = f"{median(own):.2f} | {median(other):.2f} | {median(ratios):.2f}"
        print(f"| {clock} | {medians} | {each} |")


def allocated_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def print_memory(n: int) -> None:
    """The peak while `n` sentences are encoded, beyond what the process had before."""
    own = sentences()
    texts = [own[i % len(own)] for i in range(n)]
    encode = ours()
    with tempfile.TemporaryDirectory() as folder:
        encode(texts[:64], Path(folder) / "first")
        before, peak, stop = allocated_mb(), [0.0], threading.Event()

        def watch() -> None:
            while not stop.wait(0.02):
                peak[0] = max(peak[0], allocated_mb())

        watcher = threading.Thread(target=watch)
        watcher.start()
        encode(texts, Path(folder) / "rows")
        stop.set()
        watcher.join()
    print(f"| {n:,} | {before:.0f} | {peak[0]:.0f} |", flush=True)


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
    print("\n| sentences | MB before | MB at most |\n| --- | --- | --- |", flush=True)
    for n in SIZES:
        subprocess.run(
            [sys.executable, __file__, "--threads", f"{arguments.threads}", "--memory-of", f"{n}"],
            check=True,
        )


if __name__ == "__main__":
    main()
