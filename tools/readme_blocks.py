"""Write the numbers in the READMEs of experiments from their `results.csv`.

    python tools/readme_blocks.py [experiments/NAME/README.md ...]

without a page: all of them, their index and the README of the project. A block stands between two
comments, within a line or around a table:

    gains <!-- diff score=test/spearman method=mean task=pairs_all -->…<!-- / --> points

What it says, with scores in points (x 100) and 95 % CIs over seeds (Student's t):

- `mean`: mean ± half of its CI; `value`: the mean alone
- `diff`: METHOD less OF (default: the baseline of the study), paired by seed, with its CI;
  `change`: without it
- `tasks`: that difference in TASK less that in MINUS, paired by seed
- `holm`: p of METHOD against OF (exact sign-flip test from 8 pairs on, below the paired t test),
  Holm-corrected over METHODS (`a,b,c`)
- `tost`: p of two one-sided t tests that METHOD equals OF within the margin of the study
- `range`: least and largest run; `times`: the same as multiples of the mean of OF
- `count`: runs; `collapsed`: runs with constant predictions

Arguments: `score` (a column; `gain:` before it: less its value before training; `1-` before it: one
less the value), `step` (`0`: that score before training), `method`, `of`, `of_score` (of OF, if
another than `score`), `task`, `minus`, `methods`, `seeds` (`5-7,9`), `file` (another table beside
the page). `;` joins several with commas, `/` with slashes; each begins with the arguments of the
one before. A table is yaml, a cell the arguments of its row and of its column, which counts where
both give one:

    <!-- table
    columns: {300 pairs: task=pairs_300, all pairs: task=pairs_all}
    rows:
      "`mean`": diff score=test/spearman method=mean
      "epochs": ["=20", "=1.1"]
    -->
    <!-- / -->
"""

import argparse
import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from itertools import groupby
from pathlib import Path

import pandas as pd
import yaml

from isotrain.results.statistics import compare_paired, holm, summarize
from isotrain.runs.numbers import is_share, minus, p_text, score_number

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
PAGES = [
    EXPERIMENTS.parent / "README.md",
    EXPERIMENTS / "README.md",
    *sorted(EXPERIMENTS.glob("*/README.md")),
]
BLOCK = re.compile(r"(<!-- (?!/|picture)(.*?) ?-->)(.*?)(<!-- / -->)", re.DOTALL)
KEYS = {"score", "step", "method", "of", "of_score", "task", "minus", "methods", "seeds", "file"}
Args = dict[str, str]


def main() -> None:
    """Rewrite the pages; say which have changed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", type=Path, nargs="*", default=PAGES)
    for page in parser.parse_args().pages:
        if not page.is_file():
            parser.error(
                f"pages must be files, there is no {page}: give experiments/NAME/README.md"
            )
        text = page.read_text(encoding="utf-8")
        try:
            new = filled(text, page.parent)
        except ValueError as error:
            parser.error(str(error))
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(f"{page}: changed")


def filled(text: str, folder: Path) -> str:
    """A page with the content of its blocks computed."""

    def block(match: re.Match[str]) -> str:
        opening, spec, _, closing = match.groups()
        try:
            if spec.startswith("table\n"):
                return f"{opening}\n\n{table(yaml.safe_load(spec[6:]), folder)}\n\n{closing}"
            return f"{opening}{cell(spec, '', folder)}{closing}"
        except (KeyError, ValueError) as error:
            raise ValueError(f"{folder.name}: {error} in {' '.join(spec.split())}") from None

    for word in re.findall(r"<!-- (\w+)", BLOCK.sub("", text)):
        if word in (*SAYS, "table"):
            raise ValueError(f"{folder.name}: a block ends with <!-- / -->, one of {word} does not")
    return BLOCK.sub(block, text)


def table(content: dict[str, dict[str, str | list[str]]], folder: Path) -> str:
    """A Markdown table."""
    if set(content) != {"columns", "rows"}:
        raise ValueError(f"a table has columns and rows, it has {', '.join(content)}")
    columns, rows = content["columns"], content["rows"]
    lines = [["", *columns], ["---"] * (1 + len(columns))]
    for title, row in rows.items():
        cells = row if isinstance(row, list) else [row] * len(columns)
        texts = [cell(a, str(b), folder) for a, b in zip(cells, columns.values(), strict=True)]
        lines.append([title, *texts])
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def cell(of_row: str, of_column: str, folder: Path) -> str:
    """The text of a block or of a cell of a table; `=text` is the text itself."""
    if of_row.startswith("="):
        return of_row[1:]
    words = f"{of_row} {of_column}" if of_column else of_row
    if of_column and {";", "/"} & {*of_row.split()}:  # every part has the arguments of the column
        words = re.sub(r" (?=[;/] |$)", f" {of_column} ", f"{of_row} ").strip()
    texts, args, name = [], Args(), ""
    for is_joint, group in groupby(words.split(), lambda word: word in (";", "/")):
        part = list(group)
        if is_joint:
            texts.append(", " if part == [";"] else " / ")
            continue
        names = [word for word in part if "=" not in word]
        args = args | dict(word.split("=", 1) for word in part if "=" in word)
        name = names[0] if names else name
        if len(names) > 1 or name not in SAYS:
            raise ValueError(f"a block begins with one of {', '.join(SAYS)}")
        if args.get("step", "0") != "0":
            raise ValueError("step=0 is the value before training; leave step out for the last")
        if unknown := args.keys() - KEYS:
            raise ValueError(f"no argument {', '.join(sorted(unknown))}")
        texts.append(SAYS[name](args, folder))
    return "".join(texts)


@cache
def read(file: Path) -> pd.DataFrame:
    """A table of runs."""
    return pd.read_csv(file, keep_default_na=False, na_values=[""])  # a method is called none


@cache
def baseline(folder: Path) -> str:
    """The baseline of a study."""
    return str(yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))["baseline"])


def runs(args: Args, folder: Path, method: str, task: str | None = None) -> pd.DataFrame:
    """The runs of a method in a task, by seed."""
    of = read(folder / args.get("file", "results.csv"))
    of = of[(of["method"] == method) & (of["task"] == (task or args["task"]))].set_index("seed")
    if "seeds" in args:
        ends = [part.partition("-") for part in args["seeds"].split(",")]
        seeds = {s for low, _, high in ends for s in range(int(low), int(high or low) + 1)}
        of = of[of.index.isin(seeds)]
    if of.empty:
        raise ValueError(f"no runs of {method} in {task or args['task']}")
    return of


def values(args: Args, folder: Path, method: str = "", task: str | None = None) -> pd.Series:
    """A score of each run of a method, by seed."""
    of, score = runs(args, folder, method or args["method"], task), args["score"]
    if score.startswith("gain:1-"):
        raise ValueError("gain: is of a score, not of one less it; leave 1- out")
    key = score.removeprefix("gain:").removeprefix("1-")
    key = f"before/{key}" if args.get("step") == "0" else key
    if key not in of:
        near = get_close_matches(key, of.columns, 3, 0.4)
        raise ValueError(f"no column {key}; the nearest are {', '.join(near) or 'none'}")
    scores = of[key] - of[f"before/{key}"] if score.startswith("gain:") else of[key]
    scores = 1 - scores if score.startswith("1-") else scores
    if scores.isna().any():
        lost = ", ".join(map(str, scores.index[scores.isna()]))
        raise ValueError(f"no value of {key} for seeds {lost}; choose others by seeds=, and say so")
    return scores


def differences(args: Args, folder: Path, task: str | None = None) -> tuple[pd.Series, pd.Series]:
    """The scores of a method and of what it is compared with, of the seeds of both."""
    of = args | {"score": args.get("of_score", args["score"])}
    one = values(args, folder, args["method"], task)
    two = values(of, folder, other(args, folder), task)
    if set(one.index) != set(two.index):
        raise ValueError("a paired difference needs the same seeds of both; choose them by seeds=")
    return one, two.reindex(one.index)


def other(args: Args, folder: Path) -> str:
    """The method that another is compared with."""
    return args.get("of") or baseline(folder)


def form(args: Args) -> str:
    """The key by which a number is formatted: a genre of Spearman is a Spearman."""
    key = args["score"].removeprefix("gain:").removeprefix("1-").removeprefix("before/")
    return key if key.startswith("isotropy/") else "/".join(key.split("/")[:2])


def plain(value: float, args: Args) -> str:
    """A number: points with one decimal, losses with three, all else with two or one digit."""
    key = form(args)
    if key.endswith("loss"):
        return short(f"{value:z.3f}")
    if is_share(key):
        return score_number(value, key)
    if "/partition" in key:
        return minus(f"{value:z.1f}")
    text = f"{value:z.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.1g}"
    return short(f"{value:.4f}" if 0.99 < abs(value) < 0.99995 else text)


def short(text: str) -> str:
    """A number without the zero before its point."""
    return minus(re.sub(r"^(-?)0\.", r"\1.", text))


def signed(value: float, args: Args) -> str:
    """A difference, with its sign."""
    text = plain(value, args)
    return f"+{text}" if value > 0 and re.search("[1-9]", text) else text


def mean(args: Args, folder: Path) -> str:
    """Mean ± half of its CI."""
    summary = summarize(list(values(args, folder)))
    if summary.low is None or summary.high is None:
        return plain(summary.mean, args)
    return f"{plain(summary.mean, args)} ± {plain((summary.high - summary.low) / 2, args)}"


def value(args: Args, folder: Path) -> str:
    """The mean alone."""
    return plain(float(values(args, folder).mean()), args)


def with_interval(one: list[float], two: list[float], args: Args) -> str:
    """A paired difference with its CI."""
    difference = compare_paired(one, two).difference
    text = signed(difference.mean, args)
    if difference.low is None or difference.high is None:
        return text
    return f"{text} [{signed(difference.low, args)}, {signed(difference.high, args)}]"


def diff(args: Args, folder: Path) -> str:
    """A paired difference with its CI."""
    one, two = differences(args, folder)
    return with_interval(list(one), list(two), args)


def change(args: Args, folder: Path) -> str:
    """A paired difference, the mean alone."""
    one, two = differences(args, folder)
    return signed(float((one - two).mean()), args)


def tasks(args: Args, folder: Path) -> str:
    """The difference in one task less that in another, with its CI."""
    pairs = [differences(args, folder, args[which]) for which in ("task", "minus")]
    one, two = (method - of for method, of in pairs)
    return with_interval(list(one), list(two.loc[one.index]), args)


def holm_p(args: Args, folder: Path) -> str:
    """A Holm-corrected p."""
    methods = args["methods"].split(",")
    pairs = [differences(args | {"method": name}, folder) for name in methods]
    p = holm([compare_paired(list(one), list(two)).p for one, two in pairs])
    return p_text(p[methods.index(args["method"])])


def tost(args: Args, folder: Path) -> str:
    """The p value of equivalence within the margin of the study."""
    one, two = differences(args, folder)
    return p_text(compare_paired(list(one), list(two), margin(args, folder)).p_equivalent)


def margin(args: Args, folder: Path) -> float:
    """The margin of the study; a share is of the CI end of the baseline's gain nearer to 0."""
    study = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))
    if "margin" in study:
        return float(study["margin"])
    gain = summarize(
        list(values(args | {"score": f"gain:{args['score']}"}, folder, baseline(folder)))
    )
    if gain.low is None or gain.high is None or gain.low <= 0 <= gain.high:
        raise ValueError("the gain of the baseline may be 0")
    return float(study["margin_share"] * min(abs(gain.low), abs(gain.high)))


def extent(args: Args, folder: Path) -> str:
    """The least and the largest run."""
    scores = values(args, folder)
    return f"{plain(scores.min(), args)} to {plain(scores.max(), args)}"


def times(args: Args, folder: Path) -> str:
    """The least and the largest run as multiples of the mean of another method."""
    scores = values(args, folder) / values(args, folder, other(args, folder)).mean()
    low, high = (f"{x:.0f}" if x >= 10 else f"{x:.1f}" for x in (scores.min(), scores.max()))
    return low if low == high else f"{low} to {high}"


def count(args: Args, folder: Path) -> str:
    """The number of runs."""
    return str(len(runs(args, folder, args["method"])))


def collapsed(args: Args, folder: Path) -> str:
    """The number of runs with constant predictions."""
    return str(int(runs(args, folder, args["method"])["collapsed"].sum()))


SAYS: dict[str, Callable[[Args, Path], str]] = {
    "mean": mean,
    "value": value,
    "diff": diff,
    "change": change,
    "tasks": tasks,
    "holm": holm_p,
    "tost": tost,
    "range": extent,
    "times": times,
    "count": count,
    "collapsed": collapsed,
}


if __name__ == "__main__":
    main()
