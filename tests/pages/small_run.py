"""A run folder as a run of three layers leaves it, small enough for tests of pages."""

import numpy as np

from isotrain.runs.files import RecordFile, write_json
from isotrain.runs.predictions import Predictions, write_predictions
from isotrain.runs.snapshots import write_snapshot

LAYERS, VIEWS, M = ("layer_00", "layer_01", "layer_02"), ("cls", "tokens", "mean"), 12
STEPS = (0, 20, 40)
HOSTILE = "</script><img src=x onerror=alert(1)>"  # a token, and a value of the configuration
N = {"cls": 640, "tokens": 2048, "mean": 640, "before": 640, "after": 640}


def clouds(sites=("pooled",), layer=True, views=VIEWS):
    found = [(where, view) for where in LAYERS for view in views]
    sides = ("before", "after") if layer else ("after",)
    return found + [(site, side) for site in sites for side in sides]


def value(step, where, view):
    """A different number for each."""
    return 0.1 + step / 1000 + sum(map(ord, where + view)) % 97 / 200


def evaluation(step, places):
    row = {"step": step, "val/accuracy": 0.5 + step / 400, "val/loss": 0.7 - step / 400}
    row["val/pooled/energy_kept"] = 0.5 - step / 100
    for where, view in places:
        found, place = value(step, where, view), f"{where}/{view}"
        row |= {
            f"isotropy/n_rows/{place}": N[view],
            f"isotropy/isoscore_corrected/{place}": found,
            f"isotropy/partition/{place}": -10 * found,
            f"isotropy/partition_null_low/{place}": -0.5,
            f"isotropy/partition_null_high/{place}": -0.25,
            f"isotropy/scatter_ratio_share/{place}": found / 2,
            f"isotropy/cosine_drift/{place}": step / 100,
            f"isotropy/outlier_dims_index_1/{place}": 308.0,
            f"isotropy/outlier_dims_share_1/{place}": 0.25 + step / 400,
        }
    return row


def arrays(step, places, score=False):
    rng = np.random.default_rng(step)
    found = {}
    for number, (where, view) in enumerate(places):
        cloud = f"{where}/{view}"
        found |= {
            f"spectrum/{cloud}": np.array([8.0, 4.0, 2.0, 2.0], dtype="float32"),
            f"map/{cloud}": rng.normal(size=(M, 2)).astype("float32") * (1 + number),
            f"n_rows/{cloud}": np.int64(N[view]),
        }
        if view not in ("cls", "mean"):
            found[f"cluster/{cloud}"] = (np.arange(M) % 3).astype("int16")
    for group in {view if where in LAYERS else f"{where}_site" for where, view in places}:
        labels = np.arange(M) % 2 if not score else np.linspace(0, 5, M)
        found |= {f"label/{group}": labels.astype("float32"), f"index/{group}": np.arange(M) * 7}
    token = np.array(["the", HOSTILE, "bank", "##ing"] * (M // 4))
    return found | {"token/tokens": token, "frequency/tokens": np.array([900, 1, 30, 4] * (M // 4))}


def write_run(
    folder,
    steps=STEPS,
    sites=("pooled",),
    layer=True,
    status="finished",
    isotropy=True,
    snapshots=True,
    views=VIEWS,
    **more,
):
    """Write it; `more` replaces keys of the record."""
    folder.mkdir(parents=True, exist_ok=True)
    file, places = (
        RecordFile(folder / "metrics.jsonl"),
        clouds(sites, layer, views) if isotropy else [],
    )
    for step in steps:
        if step:
            file.append({"step": step - 1, "train/loss": 0.7 - step / 200})
        file.append(evaluation(step, places))
        if snapshots and places:
            write_snapshot(folder, step, arrays(step, places))
    result = {
        "status": status,
        "method": "cluster_pca",
        "seed": 3,
        "monitor": "val/accuracy",
        "headline": ["isoscore_corrected", "partition"],
        "width": 384,
        "is_causal": False,
        "classes": ["different", "same"],
        "finished_at": "2031-02-03T04:05:06+02:00",
        "n_rows": {"train": 5428, "dev": 640, "test": 1400},
        "n_parameters": {"trainable": 5, "total": 10},
        "environment": {"isotrain": "0.1.0", "git": "0123456789ab"},
        "config": {
            "output_dir": "my runs",
            "task": {"_target_": "isotrain.tasks.wic.WiC", "prompt": HOSTILE},
            "isotropy": {"_target_": "isotrain.transforms.cluster_pca.ClusterPCA"},
        },
    }
    if status == "finished":
        scores = {k: v for k, v in evaluation(steps[-1], places).items() if k != "step"}
        file.append({"step": steps[-1], "test/accuracy": 0.55})
        scores["test/accuracy"] = 0.55
        result |= {
            "label_majority": {"dev": 0.6, "test": 0.6},
            "scores": scores,
            "steps": steps[-1],
            "selected_step": steps[-1],
        }
    write_json(folder / "result.json", result | more)
    index = np.arange(640)
    for split in ("dev", "test"):
        label = (index % 10 < 4).astype(float)  # .6 of the largest class
        write_predictions(folder, split, Predictions(index, label, label))
    return folder


def with_snapshots(folder, steps, **more):
    """A run of snapshots of one cloud, and no other isotropy."""
    write_run(folder, isotropy=False, steps=steps, **more)
    for step in steps:
        write_snapshot(folder, step, arrays(step, [("layer_01", "cls")]))
    return folder
