"""Run small configurations on an older commit and on this one, and compare every number bit by bit.

    python tools/same_numbers.py --old HEAD~3 --work ../old
    python tools/same_numbers.py --old HEAD~3 --work ../old --only zca minilm

For changes that move code and must not move numbers. The older commit is checked out below the
work folder, in an environment of its own; both are kept, and so are its runs: a second call takes
half the time. Compared are the final tensors, the rows of metrics.jsonl, predictions,
snapshots, and what result.json says of scores, sizes and selection. What a change renames on
purpose is said in KEYS and NAMES. A run that would prove nothing (no loss or measure moved, a layer
was not fitted) counts as a failure.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[1]
SHARED = (
    "encoder=tiny encoder.width=32 source=demo pooling=mean threads=1 report=false cache_dir=null "
    "trainer.accelerator=cpu trainer.max_steps=8 trainer.val_check_interval=4 data.n_train=300 "
    "trainer.log_every_n_steps=1 optimizer.lr=1e-3 training.prefill_batches=3 monitor.max_rows=256 "
    "monitor.map_rows=32 monitor.views=[cls,mean] metric=[isoscore,mean_cosine,cosine_drift] "
    "data.batch_size=16"
)


class Configuration(NamedTuple):
    """Overrides of a run; a later word replaces an earlier one of the same key.

    `first` is a run before it, whose folder is `{first}`. At a logged step `stop_at` the run is
    told to stop; the same command is then given again.
    """

    words: str
    first: str = ""
    stop_at: int = 0


CONFIGURATIONS = {
    "cluster_pca, three sites": Configuration(
        "isotropy=cluster_pca isotropy.n_clusters=2 site=[pooled,tokens,layer_1] rows=no_special "
        "objective=[cosreg] trainer.accumulate_grad_batches=2 monitor.views=[cls,tokens,mean] "
        "monitor.every_steps=3 metric=[isoscore_corrected,partition,outlier_dims,scatter_ratio]"
    ),
    "gmm_pca, batch statistics, bi": Configuration(
        "task=stsb task.form=bi isotropy=gmm_pca isotropy.n_clusters=2 isotropy.n_components=1 "
        "isotropy.stats=batch isotropy.eval_stats=batch "
        "objective=[cosent,angle] data.label_noise=0.1 schedule=cosine"
    ),
    "cluster_pca, refit": Configuration(
        "task=rte isotropy=cluster_pca isotropy.n_clusters=3 isotropy.eval_stats=refit "
        "objective=[supcon] objective.supcon.n_views=2 "
        "data.hypothesis_only=true"
    ),
    "shrink_clip, tokens": Configuration(
        "task=rte isotropy=shrink_clip site=[tokens] isotropy.n_clusters=3 schedule=constant"
    ),
    "cluster_mean, tokens": Configuration(
        "task=wic isotropy=cluster_mean isotropy.n_clusters=3 site=[tokens]"
    ),
    "anti_clip, frozen_mean": Configuration(
        "task=rte isotropy=anti_clip init_from={first}",
        first="task=rte isotropy=frozen_mean",
    ),
    "clip, best, early stopping": Configuration(
        "task=stsb task.form=bi isotropy=clip isotropy.strength=0.8 "
        "speed=exact "
        "training.select=best callbacks=[early_stopping] "
        "callbacks.early_stopping.patience=2 trainer.max_steps=40 "
        "schedule=constant optimizer.lr=6e-3 seed=1 objective=[alignment] "
        "objective.alignment.positives=pair objective.alignment.positive_labels=[0.6,1]"
    ),
    "protect_labels, gradual": Configuration(
        "task=snli isotropy=protect_labels isotropy.n_clusters=2 objective=[simcse] "
        "objective.simcse.projection=mlp freezing=gradual "
        "freezing.unit=step freezing.every=3 data.label_skew=0.4 data.n_train=480 "
        "data.label_noise=0.1 metric=[scatter_ratio,removed_label_scatter]"
    ),
    "random_directions, start, lora": Configuration(
        "task=wic pooling=spans isotropy=random_directions isotropy.stats=start "
        "isotropy.n_clusters=2 peft=lora peft.dropout=0.1 "
        "training.head_lr_factor=10 optimizer.lr=5e-3"
    ),
    "clip_cluster_pca, ia3, bi": Configuration(
        "task=snli task.form=bi pooling=cls isotropy=clip_cluster_pca isotropy.n_clusters=2 "
        "site=[layer_2] peft=ia3 optimizer.lr=1e-2 objective=[gor] "
        "objective.gor.reads=[all/mean]"
    ),
    "zca, two processes": Configuration(
        "task=wic isotropy=zca site=[tokens,pooled] objective=[istar,simcse] trainer.devices=2 "
        "objective.istar.weight=0.1 objective.istar.reference=epoch"
    ),
    "whitening, text": Configuration(
        "task=text isotropy=whitening isotropy.eval_stats=refit objective=[simcse,uniformity] "
        "objective.simcse.reads=[before] objective.simcse.symmetric=true training.layer_decay=0.7 "
        "cache_dir=${output_dir}/.cache"
    ),
    "batch_norm, bfloat16": Configuration(
        "task=wic isotropy=batch_norm objective=[vicreg,alignment] trainer.precision=bf16-mixed "
        "freezing=first_n freezing.n_blocks=1 "
        "training.frozen_dropout=true"
    ),
    "iter_norm, float64": Configuration(
        "task=stsb_sentences isotropy=iter_norm isotropy.group_size=16 trainer.precision=64-true "
        "objective=[barlow,spectral] data.batching=random"
    ),
    "group_whitening, fresh block": Configuration(
        "task=rte task.form=bi isotropy=group_whitening isotropy.stats=start "
        "isotropy.eval_stats=refit site=[layer_1] objective=[gor,koleo] training.reinit_blocks=1 "
        "freezing=embeddings"
    ),
    "standardize, stopped, resumed": Configuration(
        "task=wic isotropy=standardize site=[tokens] objective=[istar] objective.istar.weight=0.1 "
        "trainer.accumulate_grad_batches=2 trainer.max_steps=40 trainer.max_epochs=20 "
        "trainer.val_check_interval=7 checkpoint.every_steps=4 monitor.every_steps=5 speed=exact",
        stop_at=12,
    ),
    "iso_bn, pairs": Configuration(
        "task=nli_pairs task.hard_negatives=true isotropy=iso_bn objective=[dcl,sigreg] "
        "objective.dcl.positives=pair objective.dcl.hard_negative_weight=0.5 "
        "freezing=bitfit optimizer.lr=1e-2"
    ),
    "cut_tails, holdout": Configuration(
        "task=wic isotropy=cut_tails isotropy.threshold=2 isotropy.variance_factor=2 "
        "isotropy.clip_sd=1.0 pooling=last training.select=holdout data.holdout=0.2 "
        "callbacks=[early_stopping] callbacks.early_stopping.patience=3 "
        "freezing=only freezing.patterns=[*.attention.*]"
    ),
    "no layer, every metric": Configuration(
        "task=wic isotropy=none site=[tokens] monitor.views=[cls,tokens,mean] "
        "monitor.every_steps=5 metric={metrics} metric.lid.function.n_neighbors=20 "
        "init_from={first}",
        first="task=stsb trainer.max_steps=4",
    ),
    "gmm_pca, queue": Configuration(
        "task=stsb isotropy=gmm_pca isotropy.n_clusters=2 isotropy.stats=queue "
        "isotropy.queue_rows=64 metric=[isoscore,scatter_ratio]"
    ),
    "zca, lora, batches of length": Configuration(
        "task=rte isotropy=zca isotropy.stats=queue peft=lora peft.dropout=0.1 optimizer.lr=5e-3 "
        "data.batching=length training.test_untrained=true"
    ),
    "cluster_pca at two blocks, spans": Configuration(
        "task=wic pooling=spans isotropy=cluster_pca isotropy.n_clusters=2 site=[layer_1,layer_2] "
        "data.batching=length"
    ),
    "two objectives, shares": Configuration(
        "task=stsb objective=[cosreg,uniformity] objective.cosreg.weight=0.2 "
        "objective.uniformity.weight=0.1 "
        "training.objective_weight_as=share_of_task_gradient "
        "training.objective_weight_schedule=linear_decay"
    ),
    "all_but_the_top, metrics otherwise": Configuration(
        "task=rte isotropy=all_but_the_top monitor.views=[cls,tokens,mean] metric={metrics} "
        "metric.lid.function.distance=cosine metric.lid.function.aggregate=harmonic "
        "metric.lid.function.n_neighbors=9 metric.lid.function.max_queries=50 "
        "metric.s_inter.function.adjust=cluster metric.s_intra.function.adjust=cluster "
        "metric.uniformity.function.t=3 "
        "metric.linear_cka.function.debiased=true metric.partition.function.log=false "
        "metric.stable_rank.function.center=false metric.rankme.function.center=true "
        "metric.max_explainable_variance.function.center=true"
    ),
    "minilm, tokens, large clusters": Configuration(
        "encoder=minilm ~encoder.width task=stsb task.form=bi isotropy=cluster_pca site=[tokens] "
        "isotropy.n_clusters=2 isotropy.queue_rows=2048 data.n_train=64 freezing=last_n "
        "trainer.max_steps=4 trainer.val_check_interval=2 optimizer.lr=1e-4"
    ),
    "minilm, real WiC": Configuration(
        "encoder=minilm ~encoder.width source=local task=wic pooling=spans isotropy=frozen_zca "
        "isotropy.eval_stats=frozen site=[layer_6] data.n_train=64 freezing=layer_norm_only "
        "trainer.max_steps=4 trainer.val_check_interval=2 optimizer.lr=1e-3 isotropy.epsilon=0.3"
    ),
}
METRICS = (
    "alpha_req best_dimension_accuracy cluster_label_nmi condition cosine_drift effective_rank "
    "explained_variance intra_sentence_similarity isoscore isoscore_corrected isoscore_star "
    "label_silhouette lid linear_cka linear_probe_accuracy max_explainable_variance mean_cosine "
    "outlier_dims participation_ratio partition partition_null rankme removed_label_scatter "
    "s_inter s_intra scatter_ratio self_similarity spectral_entropy stable_rank two_nn uniformity"
)
KEYS: dict[str, str] = {}  # keys that this change renames: old -> new
NAMES: dict[str, str] = {}  # names of tensors and logged values: a pattern (re.sub) -> new
LEFT_OUT = re.compile(r"time_s|.*per_second.*|.*memory.*")  # values of rows that no run repeats
FACTS = (  # of result.json
    *("scores", "steps", "select", "selected_step", "n_candidates", "stopped_early"),
    *("n_parameters", "n_rows", "data_changes", "degenerate", "data", "width", "n_processes"),
)


def arguments(words: str, is_new: bool) -> list[str]:
    """The overrides of a run, each key once."""
    given: dict[str, str] = {}
    for word in f"{SHARED} {words}".split():
        if word.startswith("~"):
            given.pop(word[1:], None)
            continue
        given[word.partition("=")[0]] = word.replace("{metrics}", f"[{METRICS.replace(' ', ',')}]")
    return [KEYS.get(k, k) + word[len(k) :] if is_new else word for k, word in given.items()]


def train(side: Path, into: Path, words: list[str], stop_at: int = 0) -> Path:
    """The run folder of `isotrain train`; RuntimeError with what it said where it fails."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(side / ".venv/bin/python"), "-m", "isotrain", "train"]
    command += [*words, f"output_dir={into}"]
    with (into.parent / f"{into.name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=side,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )
        while stop_at and process.poll() is None:
            logged = [line for file in into.glob("*/*/metrics.jsonl") for line in file.open("rb")]
            if any(re.match(rf'{{"step": ?{stop_at},'.encode(), line) for line in logged):
                process.send_signal(signal.SIGTERM)
                break
            time.sleep(0.01)
        code = process.wait()
    if code != (143 if stop_at else 0):
        said = Path(log.name).read_text(errors="replace").strip().splitlines()[-12:]
        raise RuntimeError(f"exit code {code}; {Path(log.name)}: ...\n  " + "\n  ".join(said))
    return train(side, into, words) if stop_at else next(into.glob("*/*/result.json")).parent


def run_side(side: Path, into: Path, configuration: Configuration, is_new: bool) -> Path:
    """The folder of the configuration's run on one side, made anew."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    words = arguments(configuration.words, is_new)
    if configuration.first:
        first = train(side, into / "first", arguments(configuration.first, is_new))
        words = [word.replace("{first}", str(first)) for word in words]
    return train(side, into / "run", words, configuration.stop_at)


def renamed(name: str) -> str:
    """A name of the older side as the newer one has it."""
    for pattern, new in NAMES.items():
        name = re.sub(pattern, new, name)
    return name


def flat(content: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dicts and lists, by path."""
    if not isinstance(content, dict | list) or not content:
        yield path, content
        return
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield from flat(value, f"{path}.{key}" if path else str(key))


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """All numbers of a run by kind and name; arrays as their dtype, shape and bytes."""
    tensors = load_file(folder / "weights.safetensors")
    result = json.loads((folder / "result.json").read_text())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    arrays: dict[str, np.ndarray] = {}
    for file in sorted(folder.glob("snapshots/*.npz")):
        with np.load(file) as content:
            arrays |= {f"{file.name}/{name}": content[name] for name in content.files}
    return {
        "tensors": {
            name: (x.dtype, x.shape, bytes(x.flatten().view(torch.uint8).numpy()))
            for name, x in tensors.items()
        },
        "values": {
            f"row {number}, {key}": value
            for number, row in enumerate(rows)
            for key, value in row.items()
            if not LEFT_OUT.fullmatch(key)
        },
        "results": {k: value for k, value in flat(result) if k.split(".")[0] in FACTS},
        "predictions": {
            f"{file.name}, line {number}": line
            for file in sorted(folder.glob("predictions/*.csv"))
            for number, line in enumerate(file.read_text().splitlines())
        },
        "snapshots": {k: (str(x.dtype), x.shape, x.tobytes()) for k, x in arrays.items()},
    }


def differences(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> list[str]:
    """What the sides do not share, kind by kind, the first of each kind named."""
    found = []
    for kind in old:
        one, two = {renamed(name): value for name, value in old[kind].items()}, new[kind]
        for side, more in (("old", one.keys() - two.keys()), ("new", two.keys() - one.keys())):
            if alone := sorted(more):
                shown = ", ".join(alone if kind == "tensors" else alone[:3])
                found.append(f"{len(alone)} {kind} on the {side} side only: {shown}")
        unlike = [name for name in one if name in two and one[name] != two[name]]
        if unlike:
            name, is_long = unlike[0], kind in ("tensors", "snapshots")
            pair = "" if is_long else f": {one[name]} and {two[name]}"
            found.append(f"{len(unlike)} of {len(one)} {kind} differ, first {name}{pair}")
    return found


def vacuous(folder: Path) -> list[str]:
    """Why an agreement of this run would prove little; empty where it proves something."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    found = []
    losses = {row["train/loss"] for row in rows if "train/loss" in row}
    if len(losses) < 3 or not any(losses):
        found.append(f"losses are {sorted(losses)}")
    if unfinished := {k for row in rows for k, v in row.items() if "loss" in k and v is None}:
        found.append(f"{unfinished} are not finite")
    measured = [
        {k: v for k, v in r.items() if "/layer_02/" in k or "/layer_06/" in k} for r in rows
    ]
    measured = [row for row in measured if any(k.startswith("isotropy/") for k in row)]
    if measured[0] == measured[-1]:
        found.append("no measure of the upper layer moved: were parameters trained?")
    state = load_file(folder / "weights.safetensors")
    found += [f"{k} is false" for k, x in state.items() if k.endswith("is_fitted") and not x]
    return found


def prepare(side: Path) -> None:
    """Make the environment of a checkout, and see that isotrain in it is that of the checkout."""
    if not (side / ".venv/installed").exists():
        subprocess.run(["make", "--silent", "venv"], cwd=side, check=True)
    code = "import isotrain, isotrain.conf; print(isotrain.__file__, *isotrain.conf.__path__)"
    command = [str(side / ".venv/bin/python"), "-c", code]
    found = subprocess.run(command, cwd="/", check=True, capture_output=True, text=True).stdout
    if not all(Path(path).is_relative_to(side) for path in found.split()):
        sys.exit(f"the environment of {side} has another isotrain: {found.strip()}")


def main() -> int:
    """Print the table; 1 if a number differs, a run fails or proves nothing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--old", required=True, help="commit to compare with")
    parser.add_argument("--new", type=Path, default=ROOT, help="checkout to compare")
    parser.add_argument("--only", nargs="+", default=[""], help="words that a name may have")
    parser.add_argument("--work", type=Path, required=True, help="folder to work in; kept")
    given = parser.parse_args()
    work, new, old = given.work.resolve(), given.new.resolve(), given.work.resolve() / "checkout"
    git = ["git", "-C", str(ROOT), "rev-parse", f"{given.old}^{{commit}}"]
    commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    if not old.exists():
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", old, commit], check=True)
    git[2:] = [str(old), "rev-parse", "HEAD"]
    if subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip() != commit:
        parser.error(f"{old} has another commit than {given.old}; give another --work")
    for side in (old, new):
        prepare(side)
    bad = 0
    print("| configuration | seconds | compared | found |\n|---|---|---|---|")
    for name, configuration in CONFIGURATIONS.items():
        if not any(word in name for word in given.only):
            continue
        if "source=local" in configuration.words and not os.environ.get("ISOTRAIN_DATA_DIR"):
            print(f"| {name} | | | left out: ISOTRAIN_DATA_DIR is not set |", flush=True)
            continue
        started, compared = time.perf_counter(), ""
        place = re.sub(r"\W+", "_", name)
        note = work / "old" / place / "done.json"
        words = json.dumps([SHARED, METRICS, configuration])
        try:
            if not note.exists() or json.loads(note.read_text())["words"] != words:
                folder = run_side(old, note.parent, configuration, is_new=False)
                note.write_text(json.dumps({"words": words, "folder": str(folder)}))
            of_old = Path(json.loads(note.read_text())["folder"])
            of_new = run_side(new, work / "new" / place, configuration, is_new=True)
            numbers = read(of_old)
            found = differences(numbers, read(of_new))
            found += [f"proves little: {x}" for x in vacuous(of_old)]
            compared = ", ".join(f"{len(content)} {kind}" for kind, content in numbers.items())
        except RuntimeError as error:
            found = [str(error)]
        bad += bool(found)
        seconds = time.perf_counter() - started
        print(
            f"| {name} | {seconds:.0f} | {compared} | {'; '.join(found) or 'identical'} |",
            flush=True,
        )
    print(f"\n{bad} configurations differ or fail" if bad else "\nidentical")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
