"""What runs keep elsewhere: STS12 to STS16, SICK-R and STS-B by cosine, and SST-2 by neighbours.

`python elsewhere.py DATA OUT.csv RUN ...`: DATA has sts12/ ... sickr/ and sst2/; each RUN is the
folder of a finished run with form=bi and its weights. Embeddings are those that the run compares,
after its isotropy layer, with its prefix; nothing is fitted again.

- `test/spearman/SET`: on test, without pairs of which a sentence is in train or dev of STS-B or
  SICK-R (STS-B was drawn from STS12 to STS17).
- `test/accuracy/sst2_knn`: test sentences by the 10 nearest of the 10,000 of train, by cosine.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr
from sklearn.neighbors import KNeighborsClassifier

from isotrain.runs.files import read_result
from isotrain.tasks.data.encoding import collate
from isotrain.training.module import FineTuning

SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
NEIGHBOURS = 10


def lines(data: Path, name: str, split: str) -> list[dict]:
    """The examples of a split."""
    text = (data / name / f"{split}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


@torch.no_grad()
def embed(module: FineTuning, texts: Sequence[str]) -> np.ndarray:
    """The embedding of each text after the run's layer, of length 1, `[N, D]`."""
    task, tokenizer = module.task, module.model.encoder.tokenizer
    first, second = task.text
    rows = [{first: text, second: text, task.data_set.target: 0.0} for text in texts]
    examples = iter(sorted(task.encode(rows, tokenizer), key=lambda e: len(e.input_ids[0])))
    found = np.empty((len(texts), module.model.encoder.width), np.float32)
    while batch := list(islice(examples, 64)):
        pooled = module.model(collate(batch, tokenizer.pad_token_id)).pooled
        unit = torch.nn.functional.normalize(pooled[:, 0].float(), dim=1)
        found[[example.index for example in batch]] = unit.numpy()
    return found


def elsewhere(folder: Path, data: Path) -> dict[str, object]:
    """The row of a run."""
    module, result = FineTuning.from_run(folder), read_result(folder)
    seen = {
        row[side]
        for name in ("stsb", "sickr")
        for split in ("train", "dev")
        for row in lines(data, name, split)
        for side in ("sentence1", "sentence2")
    }
    row = {"method": folder.name.rpartition("-")[0], "seed": result["config"]["seed"]}
    row |= {"lr": result["config"]["optimizer"]["lr"], "steps": result["steps"]}
    row |= {"n_train": result["config"]["data"]["n_train"] or "all"}
    for name in SETS:
        pairs = [
            pair
            for pair in lines(data, name, "test")
            if not seen & {pair["sentence1"], pair["sentence2"]}
        ]
        sides = [embed(module, [p[side] for p in pairs]) for side in ("sentence1", "sentence2")]
        gold = [pair["score"] for pair in pairs]
        cosine = (sides[0] * sides[1]).sum(axis=1)
        row[f"test/spearman/{name}"] = float(spearmanr(cosine, gold).statistic)
    row["test/spearman/mean"] = float(np.mean([row[f"test/spearman/{name}"] for name in SETS]))
    train, test = (lines(data, "sst2", split) for split in ("train", "test"))
    x_train, x_test = (embed(module, [one["sentence"] for one in of]) for of in (train, test))
    knn = KNeighborsClassifier(NEIGHBOURS).fit(x_train, [one["label"] for one in train])
    row["test/accuracy/sst2_knn"] = float(knn.score(x_test, [one["label"] for one in test]))
    return row


def main() -> None:
    """A row a run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    args = parser.parse_args()
    table = pd.DataFrame([elsewhere(run, args.data) for run in args.runs])
    table.sort_values(["n_train", "method", "seed"]).to_csv(
        args.out, index=False, float_format="%.6g", lineterminator="\n"
    )


if __name__ == "__main__":
    main()
