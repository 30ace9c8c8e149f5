"""Writes run20.json: 20 steps of a small run, to be compared with by tests/training/test_golden.py.

Run from the repository root: python tests/golden/regenerate.py
Regenerate only for a change that is meant to alter training, and say so in its commit.
"""

import importlib.util
import json
import tempfile
from pathlib import Path

FILE = Path(__file__).with_name("run20.json")
OVERRIDES = (
    "task=wic",
    "encoder=tiny",
    "encoder.width=32",
    "source=local",
    "isotropy=cluster_pca",
    "isotropy.n_clusters=1",
    "site=[pooled,tokens]",
    # CLS embeddings of a random encoder are nearly equal (mean cosine .99999): a layer that centres
    # them enlarges their rounding a hundredfold. Their means over tokens are not.
    "pooling=mean",
    "objective=[cosreg]",
    "objective.cosreg.weight=0.1",
    # One cluster, since a row between two may change sides; a wide eps and a small step, since
    # Adam divides rounding by rounding where a gradient is small.
    "optimizer.eps=1e-5",
    "optimizer.lr=1e-4",
    "data.batch_size=8",
    "metric=[isoscore,mean_cosine,partition]",
    "monitor.max_rows=2048",  # every row of dev
    "trainer.max_epochs=2",
    "trainer.max_steps=20",
    "trainer.log_every_n_steps=1",
    "trainer.accelerator=cpu",
    "threads=1",
    "report=false",
    "speed=exact",  # dropout masks of torch
)


def measure(folder: Path, write_data) -> dict:
    """Losses of each step, and the isotropy and scores at step 0 and at the end."""
    import torch

    from isotrain.config.compose import compose_run
    from isotrain.runner import folder_of, run
    from isotrain.runs.files import read_records

    write_data(folder / "data", seed=0)
    own = [f"source.root={folder / 'data'}", f"output_dir={folder / 'runs'}"]
    cfg = compose_run([*OVERRIDES, *own])
    threads = torch.get_num_threads()
    try:
        run(cfg)
    finally:
        torch.set_num_threads(threads)
    rows = read_records(folder_of(cfg) / "metrics.jsonl")
    measured = [
        {k: v for k, v in row.items() if k.startswith(("isotropy/", "val/"))}
        for row in rows
        if any(key.startswith("isotropy/") for key in row)
    ]
    return {
        "script": "tests/golden/regenerate.py",
        "losses": [row["train/loss"] for row in rows if "train/loss" in row],
        "first": measured[0],
        "last": measured[-1],
    }


def main() -> None:
    spec = importlib.util.spec_from_file_location(
        "fixtures", Path(__file__).parents[1] / "conftest.py"
    )
    fixtures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fixtures)
    with tempfile.TemporaryDirectory() as folder:
        record = measure(Path(folder), fixtures.write_data)
    FILE.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
