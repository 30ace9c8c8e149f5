"""Run one analysis end to end, or resume it: encoders, parts, tables, figures, page."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, open_dict

from isotrain.analysis.outputs import write_outputs
from isotrain.analysis.published import Published, beside, read_published
from isotrain.analysis.store import Store
from isotrain.analysis.types import AFTER, AS_GIVEN, BEFORE, Analysis, Subject
from isotrain.config.analysis import analysis_hash
from isotrain.config.compose import plain
from isotrain.config.parts import make
from isotrain.console import duration, say, spinner
from isotrain.encoders.base import Encoder
from isotrain.encoders.start import ENCODER, reinit_blocks, start_file
from isotrain.geometry.rng import rng_stream
from isotrain.model.checkpoint import load_weights
from isotrain.runs.files import WEIGHTS_FILE, read_result, sha256_of, write_json
from isotrain.runs.record import (
    CannotRunError,
    check_writable,
    code_changes,
    code_state,
    environment,
    owned,
)
from isotrain.runs.secrets import redacted
from isotrain.tasks.data.sources import Source

DIGITS = 12  # of the digest of a file


class _Plan(NamedTuple):
    """A validated analysis; no weights are loaded yet."""

    analysis: Analysis
    source: Source
    published: list[Published]
    name: str  # of the encoder, as in the published figures
    end: Path | None  # final weights of the run `from_run`
    store: Store
    facts: dict[str, Any]  # what the numbers depend on besides configuration and code


def analyze(cfg: DictConfig, overrides: Sequence[str] = ()) -> Path:
    """Run or resume an analysis; its folder.

    `<output_dir>/analysis/<name>/<encoder>-<content hash>` has `records.csv` (a line per record),
    `<table>.csv`, `analysis.html` and `result.json`. A finished analysis is read without loading an
    encoder. An interrupted one resumes at its part, unless its data, the run, a file named in the
    configuration, or the code has changed.

    Raises:
        CannotRunError: an encoder, data or a run is missing, or they are incompatible; nothing is
            written then.
        ValueError: a part of the analysis is undefined for this corpus or encoder.
    """
    start = time.perf_counter()
    with spinner("looking for data and weights") as now:
        try:
            plan = _plan(cfg)
            encoder = None
            if cfg.rerun or not plan.store.finished(plan.facts):
                now("loading the encoder")
                encoder = first_encoder(cfg, plan.end)
        except (ValueError, OSError) as error:
            raise CannotRunError(redacted(str(error))) from error
        store = plan.store
        with owned(store.folder):
            if encoder is None:
                record = store.finished(plan.facts)
                note = code_changes(record, code_state())
                say(f"{store.folder} is finished; rerun=true measures again{note}")
            else:
                store.begin(plan.facts | {"code": code_state()}, bool(cfg.rerun))
                record = _measured(cfg, plan, encoder, now)
            record["config"] = redacted(plain(cfg))
            record["overrides"] = redacted([t for t in overrides if not t.startswith("rerun=")])
            now("drawing tables and figures")
            outcome = store.outcome(record["parts"])
            comparisons = beside(plan.published, outcome.records, plan.name)
            write_outputs(store.folder, plan.analysis, outcome, comparisons, record)
            record.setdefault("total_s", round(time.perf_counter() - start, 2))
            write_json(store.folder / "result.json", record)
    return store.folder


def _plan(cfg: DictConfig) -> _Plan:
    with open_dict(cfg):  # resolve threads and device
        torch.set_num_threads(cfg.threads or torch.get_num_threads())
        cfg.threads = torch.get_num_threads()
        cfg.device = device_of(getattr(cfg.device, "value", cfg.device))
    end = start_file(cfg.from_run, cfg.encoder, "from_run")
    analysis: Analysis = make(cfg.analysis, Analysis)
    source: Source = make(cfg.source, Source)
    if missing := analysis.missing(source):
        raise ValueError("\n".join(missing))
    name = _name_of(cfg.encoder)
    store = Store(_folder(cfg, analysis, name))
    check_writable(store.folder)
    files = file_digests([plain(cfg.analysis), plain(cfg.encoder)])
    revisions = dict.fromkeys(map(source.revision_of, analysis.data_sets(source)))
    facts = {
        "data": "; ".join(revisions) or ", ".join(files),
        "from_run": None if end is None else sha256_of(end),
        "files": files,
    }
    return _Plan(analysis, source, read_published(analysis.published), name, end, store, facts)


def device_of(device: str) -> str:
    """`cpu` or `cuda`, for `device=auto | cpu | cuda`."""
    available = "cuda" if torch.cuda.is_available() else "cpu"
    return available if device == "auto" else device


def _name_of(encoder: DictConfig) -> str:
    """Encoder name; differs if truncated, as published figures are of the full encoder."""
    if (name := encoder.get("name")) is None:
        return str(encoder["_target_"])
    n_blocks = encoder.get("n_blocks")
    return str(name) if n_blocks is None else f"{name}, cut after block {n_blocks}"


def file_digests(node: Any) -> dict[str, str]:
    """Twelve hex digits of the SHA-256 of each file that a value of `node` names, by its path.

    For a folder, such as an encoder's, every file directly in it counts; subfolders do not.

    >>> file_digests({"encoder": {"name": "google-bert/bert-base-uncased", "width": 3}})
    {}
    """
    if isinstance(node, str):
        path = Path(node).expanduser()
        files = sorted(path.iterdir()) if node and path.is_dir() else [path]
        return {str(file): sha256_of(file)[:DIGITS] for file in files if file.is_file()}
    parts = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    return {path: digits for part in parts for path, digits in file_digests(part).items()}


def first_encoder(cfg: DictConfig, end: Path | None) -> Encoder:
    """The encoder in evaluation mode, on its device: as given, or as at the start of a run.

    Blocks that a run re-initialises (`training.reinit_blocks`) are drawn with its seed, and its
    `init_from` is loaded. `end` holds the final weights of the run; None = no run.
    """
    run = {} if end is None else read_result(end.parent)
    config = run.get("config", {})
    torch.manual_seed(config.get("seed", cfg.seed))
    encoder: Encoder = make(cfg.encoder, Encoder)
    if init_from := run.get("init_from"):
        path = Path(init_from["path"]).expanduser()
        file = path / WEIGHTS_FILE if path.is_dir() else path
        if not file.is_file() or sha256_of(file) != init_from["sha256"]:
            raise ValueError(
                f"from_run: that run started from {path}, which is gone, or is another by now; "
                "put it back, or measure a run that started from its encoder's own weights"
            )
        load_weights(encoder, file, ENCODER)
    if n_blocks := config.get("training", {}).get("reinit_blocks", 0):
        with rng_stream(config["seed"], "reinit_blocks"):
            reinit_blocks(encoder, n_blocks)
    return encoder.eval().to(str(cfg.device))


def each_weights(encoder: Encoder, end: Path | None) -> Iterator[tuple[str, Encoder]]:
    """Name of the weights, and the encoder with them: as given, or before and after."""
    yield (AS_GIVEN if end is None else BEFORE), encoder
    if end is not None:
        load_weights(encoder, end, ENCODER)
        yield AFTER, encoder


def _measured(
    cfg: DictConfig, plan: _Plan, encoder: Encoder, now: Callable[[str], None]
) -> dict[str, Any]:
    """Compute the missing parts; the record of the analysis."""
    store, limit = plan.store, encoder.max_positions
    length = cfg.max_length if limit is None else min(cfg.max_length, limit)
    if length < cfg.max_length:
        say(f"max_length={cfg.max_length} is beyond the positions of {plan.name}; {length} is used")
    parts: list[tuple[str, str]] = []
    for weights, model in each_weights(encoder, plan.end):
        settings = cfg.seed, cfg.batch_size, length
        subject = Subject(model, plan.source, *settings, store.folder, weights)
        for part in plan.analysis.parts(subject):
            parts.append((weights, part.name))
            if not store.has(weights, part.name):
                now(f"measuring {part.name}, weights {weights}")
                began_at = time.perf_counter()
                store.keep(weights, part.name, part.measure())
                say(f"{part.name}, weights {weights}: {duration(time.perf_counter() - began_at)}")
    return {
        "status": "finished",
        "analysis": plan.analysis.name,
        "encoder": plan.name,
        "weights": encoder.source_id,
        **plan.facts,
        "parts": parts,
        "environment": environment(cfg.threads) | {"device": str(cfg.device)},
    }


def _folder(cfg: DictConfig, analysis: Analysis, name: str) -> Path:
    """`<output_dir>/analysis/<name>/<encoder>-<content hash>`, by the encoder's last name."""
    is_target = name == cfg.encoder["_target_"]
    last = name.rstrip("/").rpartition("." if is_target else "/")[2].removeprefix("build_")
    label = re.sub(r"[^A-Za-z0-9]+", "_", last).strip("_").lower()
    return Path(str(cfg.output_dir)) / "analysis" / analysis.name / f"{label}-{analysis_hash(cfg)}"
