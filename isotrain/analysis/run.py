"""One analysis from start to end: encoders, parts, tables, pictures, page; or on from a stop."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, open_dict

from isotrain.analysis.outputs import write_outputs
from isotrain.analysis.published import beside, disagreements, read_published
from isotrain.analysis.start import start_of
from isotrain.analysis.store import Store
from isotrain.analysis.types import Analysis, Part, Subject
from isotrain.config.analysis import analysis_hash
from isotrain.config.compose import plain
from isotrain.config.redaction import redacted
from isotrain.encoders.finished_run import sha256_of
from isotrain.encoders.start import load_start
from isotrain.pages.summary import say
from isotrain.progress import duration, working
from isotrain.record import CannotRunError, check_writable, environment
from isotrain.results import read_result, write_json
from isotrain.types import Encoder, Source

AS_GIVEN, BEFORE, AFTER = "as given", "before", "after"
PART_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


def analyze(cfg: DictConfig, overrides: Sequence[str] = ()) -> tuple[Path, list[str]]:
    """The folder of a finished analysis, and in what it disagrees with published figures.

    The folder is `<output_dir>/analysis/<name>/<encoder>-<content hash>`. It receives
    `records.csv` (all that was measured, a line each), `tables.md` and `<table>.csv`,
    `analysis.html` with `figures/`, and `result.json`. A finished analysis is read, not measured
    again; one that was stopped goes on at the part, and among its rows at the batch, where it was.
    Disagreements are looked for with `check=published` only.

    Raises:
        CannotRunError: a ValueError: an encoder, data or a run that is not there, or that do not
            go together; nothing is written then.
    """
    started = time.perf_counter()
    try:
        torch.set_num_threads(cfg.threads or torch.get_num_threads())
        with open_dict(cfg):
            cfg.threads = torch.get_num_threads()
        start = start_of(cfg)
        analysis: Analysis = _made(cfg.analysis)
        published = read_published(analysis.published)
        source: Source = _made(cfg.source)
        if missing := analysis.missing(source):
            raise ValueError("\n".join(missing))
        facts = _facts(cfg, analysis, source, start)
        store = Store(_folder(cfg, analysis))
        check_writable(store.folder)
    except (ValueError, OSError) as error:
        raise CannotRunError(redacted(str(error))) from error
    name = str(cfg.encoder.get("name") or facts["encoder"])
    with store.owned():
        store.begin(facts, bool(cfg.rerun))
        record = read_result(store.folder)
        parts = [(weights, part) for weights, part in record.get("parts", [])]
        if parts:
            say(f"{store.folder} is finished; rerun=true measures again")
        else:
            seconds = dict[str, float]()
            for weights, encoder in _encoders(cfg, start):
                subject = _subject(cfg, store, source, encoder)
                for part in analysis.parts(subject):
                    parts.append((weights, part.name))
                    took = _measured(store, weights, part)
                    seconds[f"{weights}/{part.name}"] = took
            record = {"status": "finished", **facts, "parts": parts, "seconds": seconds}
            record["environment"] = environment()
            told = [t for t in overrides if not t.startswith(("check=", "rerun="))]
            record["overrides"] = redacted(told)
        outcome = store.outcome(parts)
        compared = beside(published, outcome.records, name)
        with working("drawing tables and figures"):
            write_outputs(store.folder, analysis, outcome, compared, record, name)
        record["total_s"] = record.get("total_s", round(time.perf_counter() - started, 2))
        write_json(store.folder / "result.json", record)
        store.drop_rows()
    wrong = disagreements(compared, name) if cfg.check is not None else []
    return store.folder, wrong


def _measured(store: Store, weights: str, part: Part) -> float:
    """Measure a part that is not yet, and keep it; the seconds that took."""
    if not PART_NAME.fullmatch(part.name):
        raise ValueError(f"a part's name has lower-case letters, digits, _ and -, got {part.name}")
    name = f"{weights}-{part.name}".replace(" ", "_")
    began_at = time.perf_counter()
    if not store.has(name):
        with working(f"measuring {part.name}, {weights}"):
            store.keep(name, part.measure())
        say(f"{part.name}, weights {weights}: {duration(time.perf_counter() - began_at)}")
    return round(time.perf_counter() - began_at, 2)


def _encoders(cfg: DictConfig, start: Path | None) -> Iterator[tuple[str, Encoder]]:
    """Encoders in evaluation mode, one after the other: as given, or before and after a run."""
    with working("loading the encoder"):
        torch.manual_seed(cfg.seed)  # of random weights
        encoder: Encoder = _made(cfg.encoder)
        encoder.eval()  # type: ignore[attr-defined]
    if start is None:
        yield AS_GIVEN, encoder
        return
    yield BEFORE, encoder
    load_start(encoder, start)
    yield AFTER, encoder


def _subject(cfg: DictConfig, store: Store, source: Source, encoder: Encoder) -> Subject:
    limit = encoder.max_positions
    length = cfg.max_length if limit is None else min(cfg.max_length, limit)
    return Subject(encoder, source, cfg.seed, cfg.batch_size, length, store.rows, lambda text: None)


def _folder(cfg: DictConfig, analysis: Analysis) -> Path:
    given = str(cfg.encoder.get("name") or cfg.encoder["_target_"])
    label = re.sub(r"[^A-Za-z0-9]+", "_", given.rstrip("/").rpartition("/")[2]).strip("_").lower()
    label = label.rpartition("_build_")[2] or label
    return Path(str(cfg.output_dir)) / "analysis" / analysis.name / f"{label}-{analysis_hash(cfg)}"


def _facts(
    cfg: DictConfig,
    analysis: Analysis,
    source: Source,
    start: Path | None,
) -> dict[str, Any]:
    """What the numbers depend on beside the code."""
    revisions = dict.fromkeys(source.revision_of(one) for one in analysis.data_sets(source))
    return {
        "analysis": analysis.name,
        "encoder": str(cfg.encoder.get("name") or cfg.encoder["_target_"]),
        "config": redacted(plain(cfg)) | {"check": None, "rerun": False},
        "data": "; ".join(revisions),
        "from_run": None
        if start is None
        else {"path": str(cfg.from_run), "sha256": sha256_of(start)},
    }


def _made(node: DictConfig) -> Any:
    """The part of a node, called outside of Hydra, which would wrap what it raises."""
    return instantiate(node, _partial_=True, _convert_="all")()
