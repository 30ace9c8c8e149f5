"""Run one analysis end to end, or resume it: encoders, parts, tables, figures, page."""

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, open_dict

from isotrain.analysis.outputs import write_outputs
from isotrain.analysis.published import (
    Published,
    beside,
    check_comparable,
    disagreements,
    read_published,
)
from isotrain.analysis.start import given_files, result_of
from isotrain.analysis.store import Store
from isotrain.analysis.types import Analysis, Subject
from isotrain.analysis.weights import device_of, each_weights, first_encoder
from isotrain.config.analysis import analysis_hash
from isotrain.config.compose import plain
from isotrain.config.parts import make
from isotrain.console import duration, say, spinner
from isotrain.encoders.base import Encoder
from isotrain.encoders.start import start_file
from isotrain.runs.files import sha256_of, write_json
from isotrain.runs.record import (
    CannotRunError,
    check_writable,
    code_changes,
    code_state,
    environment,
)
from isotrain.runs.secrets import redacted
from isotrain.tasks.data.sources import Source

PART_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


class _Plan(NamedTuple):
    """A validated analysis; no weights are loaded yet."""

    cfg: DictConfig  # threads and device spelled out
    analysis: Analysis
    source: Source
    published: list[Published]
    name: str  # of the encoder, as in the published figures
    end: Path | None  # final weights of the run `from_run`
    store: Store
    facts: dict[str, Any]  # what the numbers depend on besides configuration and code


def analyze(cfg: DictConfig, overrides: Sequence[str] = ()) -> tuple[Path, list[str]]:
    """Run or resume an analysis; its folder, and its disagreements with published figures.

    `<output_dir>/analysis/<name>/<encoder>-<content hash>` has `records.csv` (a line a record),
    `tables.md`, `<table>.csv`, `analysis.html` with `figures/`, and `result.json`. A finished
    analysis is read without loading an encoder. An interrupted one resumes at its part and batch,
    unless its data, the run, or a file named in the configuration has changed. Disagreements are
    checked with `check=published` only.

    Raises:
        CannotRunError: an encoder, data or a run is missing, or they are incompatible; nothing is
            written then.
        ValueError: a part of the analysis is undefined for this corpus or encoder.
    """
    started = time.perf_counter()
    with spinner("looking for data and weights") as now:
        try:
            plan = _plan(cfg)
            encoder = None
            if cfg.rerun or not plan.store.finished(plan.facts):
                now("loading the encoder")
                encoder = first_encoder(plan.cfg, plan.end)
        except (ValueError, OSError) as error:
            raise CannotRunError(redacted(str(error))) from error
        store = plan.store
        with store.owned():
            for sentence in store.begin(plan.facts, bool(cfg.rerun)):
                say(sentence)
            if record := store.finished(plan.facts):  # perhaps by another process meanwhile
                note = code_changes(record, code_state())
                say(f"{store.folder} is finished; rerun=true measures again{note}")
            else:
                encoder = encoder or first_encoder(plan.cfg, plan.end)
                record = _measured(plan, encoder, now)
            record["config"] = redacted(plain(plan.cfg))
            record["overrides"] = redacted([t for t in overrides if not t.startswith("rerun=")])
            now("drawing tables and figures")
            outcome = store.outcome(record["parts"])
            compared = beside(plan.published, outcome.records, plan.name)
            write_outputs(store.folder, plan.analysis, outcome, compared, record)
            record.setdefault("total_s", round(time.perf_counter() - started, 2))
            write_json(store.folder / "result.json", record)
            store.drop_rows()
    return store.folder, disagreements(compared) if cfg.check is not None else []


def _plan(cfg: DictConfig) -> _Plan:
    with open_dict(cfg):
        torch.set_num_threads(cfg.threads or torch.get_num_threads())
        cfg.threads = torch.get_num_threads()
        cfg.device = device_of(getattr(cfg.device, "value", cfg.device))
    end = start_file(cfg.from_run, cfg.encoder, "from_run")
    analysis: Analysis = make(cfg.analysis, Analysis)
    published = read_published(analysis.published)
    if instead := analysis.instead:
        if cfg.from_run is not None:
            raise ValueError(
                f"from_run measures the encoder of a run, and this analysis measures {instead} in "
                "place of an encoder; leave one of them out"
            )
        with open_dict(cfg):
            cfg.encoder = None
    name = instead or _name_of(cfg.encoder)
    if cfg.check is not None:
        check_comparable(published, name)
        _check_start(cfg)
    source: Source = make(cfg.source, Source)
    if missing := analysis.missing(source):
        raise ValueError("\n".join(missing))
    store = Store(_folder(cfg, analysis, name))
    check_writable(store.folder)
    revisions = dict.fromkeys(source.revision_of(one) for one in analysis.data_sets(source))
    files = given_files([plain(cfg)[key] for key in ("analysis", "encoder")])
    facts = {
        "data": "; ".join(revisions) or ", ".join(files),
        "from_run": None if end is None else sha256_of(end),
        "files": files,
    }
    return _Plan(cfg, analysis, source, published, name, end, store, facts)


def _name_of(encoder: DictConfig) -> str:
    """Encoder name; differs if truncated, as published figures are of the full encoder."""
    if (name := encoder.get("name")) is None:
        return str(encoder["_target_"])
    n_blocks = encoder.get("n_blocks")
    return str(name) if n_blocks is None else f"{name}, cut after block {n_blocks}"


def _measured(plan: _Plan, encoder: Encoder, now: Callable[[str], None]) -> dict[str, Any]:
    """Compute the missing parts; the record of the analysis."""
    cfg, store, limit = plan.cfg, plan.store, encoder.max_positions
    length = cfg.max_length if limit is None else min(cfg.max_length, limit)
    if length < cfg.max_length:
        say(f"max_length={cfg.max_length} is beyond the positions of {plan.name}; {length} is used")
    code = code_state()
    if earlier := store.of_other_code(code):
        say(f"measured before by other code, and kept: {', '.join(earlier)}")
    parts: list[tuple[str, str]] = []
    for weights, measured in each_weights(encoder, plan.end):

        def tell(text: str, weights: str = weights) -> None:
            now(f"{text}, weights {weights}")

        settings = cfg.seed, cfg.batch_size, length
        subject = Subject(measured, plan.source, *settings, store.rows(weights), tell, weights)
        for part in plan.analysis.parts(subject):
            if not PART_NAME.fullmatch(part.name):
                raise ValueError(
                    f"a part's name has lower-case letters, digits, _ and -, got {part.name}"
                )
            parts.append((weights, part.name))
            if not store.has(weights, part.name):
                tell(f"measuring {part.name}")
                began_at = time.perf_counter()
                found = part.measure()
                took = time.perf_counter() - began_at
                store.keep(weights, part.name, found, took, code)
                say(f"{part.name}, weights {weights}: {duration(took)}")
    return {
        "status": "finished",
        "analysis": plan.analysis.name,
        "encoder": plan.name,
        "weights": encoder.source_id,
        **plan.facts,
        "parts": parts,
        "seconds": {f"{weights}/{part}": store.seconds(weights, part) for weights, part in parts},
        "other_code": store.of_other_code(code),
        "environment": environment(cfg.threads) | {"device": str(cfg.device)},
    }


def _check_start(cfg: DictConfig) -> None:
    """Reject published figures for a run that did not start from the published weights."""
    run = {} if cfg.from_run is None else result_of(cfg.from_run)
    reinit = run.get("config", {}).get("training", {}).get("reinit_blocks", 0)
    if run.get("init_from") or reinit:
        other = "blocks drawn anew" if reinit else "the weights of another run"
        raise ValueError(
            "check=published needs the encoder as it was published, and the run of "
            f"from_run={cfg.from_run} started with {other}; use check=null"
        )


def _folder(cfg: DictConfig, analysis: Analysis, name: str) -> Path:
    """`<output_dir>/analysis/<name>/<encoder>-<content hash>`, by the encoder's last name."""
    is_target = cfg.encoder is not None and name == cfg.encoder["_target_"]
    last = name.rstrip("/").rpartition("." if is_target else "/")[2].removeprefix("build_")
    label = re.sub(r"[^A-Za-z0-9]+", "_", last).strip("_").lower()
    return Path(str(cfg.output_dir)) / "analysis" / analysis.name / f"{label}-{analysis_hash(cfg)}"
