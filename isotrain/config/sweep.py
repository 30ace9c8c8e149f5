"""Multiple runs: yaml files of studies, searches and sweeps, and `sweep=NAME`.

A file is `conf/<group>/<name>.yaml`; `sweep=NAME` on a command line gives keys the values
listed in a file of `conf/sweep`.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig

from isotrain.config.command import check_jobs
from isotrain.config.compose import RunJob, conf_folder, key_of, written
from isotrain.config.foreign import content_of, plan_mistakes
from isotrain.config.schema import BOUNDS_OF_ANY
from isotrain.config.signatures import nearest

NAME = r"[A-Za-z0-9][A-Za-z0-9_.]*"  # of such a file: names become file names, joined by dashes
GROUP = "sweep"  # folder of its files
SWEEP = "sweep="


def check_sweep(
    overrides: Sequence[str], config_dir: str | None = None, multirun: bool = False
) -> tuple[list[RunJob], list[str], list[str]]:
    """Runs, overrides with each `sweep=NAME` expanded, and errors: see `check_jobs`."""
    mistakes = []
    try:
        overrides = with_sweeps(overrides, multirun, config_dir)
    except ValueError as error:
        mistakes.append(str(error))
        overrides = [text for text in overrides if not text.startswith(SWEEP)]
    jobs, found = check_jobs(overrides, config_dir, multirun)
    return jobs, list(overrides), mistakes + found


def with_sweeps(
    overrides: Sequence[str], multirun: bool, config_dir: str | None = None
) -> list[str]:
    """The overrides with every `sweep=NAME` replaced by `key=value,value` of its file.

    `sweep=[layers,seeds]` crosses two files. The command line takes precedence over a file, a later
    file over an earlier one, a file of `config_dir` over one of the package.

    Raises:
        ValueError: an unknown name, a file of another form, or a sweep without `-m`.

    >>> with_sweeps(["task=rte", "sweep=seeds"], multirun=True)
    ['seed=0,1,2,3,4', 'task=rte']
    """
    chosen = [text for text in overrides if text.startswith(SWEEP)]
    own = [text for text in overrides if text not in chosen]
    if chosen and not multirun:
        raise ValueError(f"{chosen[0]} gives several runs; add -m to start them")
    found: dict[str, str] = {}
    for text in chosen:
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException as error:
            raise ValueError(f"{text} cannot be read: {error}") from error
        if override.is_sweep_override():
            raise ValueError(
                f"{text} must be one name, or a list of names that are crossed: 'sweep=[a,b]'"
            )
        value = override.value()
        for name in value if isinstance(value, list) else [value]:
            found |= _read(str(name), config_dir)
    given = {key_of(text) for text in own}
    return [*(f"{key}={value}" for key, value in found.items() if key not in given), *own]


def swept_keys(overrides: Sequence[str]) -> list[str]:
    """The keys with several values on a command line."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return [override.get_key_element() for override in parsed if override.is_sweep_override()]


def _read(name: str, config_dir: str | None) -> dict[str, str]:
    """The keys of a file with their values in command-line syntax."""
    own = {} if config_dir is None else {p.stem: p for p in Path(config_dir, GROUP).glob("*.yaml")}
    if name not in (known := sorted({*own, *names(GROUP)})):
        raise ValueError(f"sweep={name} does not exist; {nearest(name, known, 'there are')}")
    content = content_of(text_of(GROUP, str(own.get(name, name))), f"sweep={name}")
    if not isinstance(content, dict) or not content:
        raise ValueError(f"sweep={name} must map keys to lists of values, such as seed: [0, 1, 2]")
    found: dict[str, str] = {}
    for key, values in content.items():
        if not (isinstance(values, str) or (isinstance(values, list) and values)):
            raise ValueError(
                f"sweep={name} gives {key} the value {values!r}; give a list such as [{values}], "
                "or a text as on the command line, such as range(5)"
            )
        try:
            found[str(key)] = values if isinstance(values, str) else written(values)[1:-1]
        except ValueError as error:
            raise ValueError(f"sweep={name}: {error}") from error
    if mistakes := plan_mistakes({"overrides": [f"{k}={values}" for k, values in found.items()]}):
        raise ValueError(f"sweep={name}: {mistakes[0]}")
    return found


def shipped(group: str) -> Any:
    """The folder of a group of `conf`, on disk or inside the installed package."""
    folder = conf_folder()
    root = files(folder.removeprefix("pkg://")) if folder.startswith("pkg://") else Path(folder)
    return root / group


def names(group: str) -> list[str]:
    """The names of the files in the package, sorted."""
    found = (file.name for file in shipped(group).iterdir())
    return sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml"))


def text_of(group: str, name_or_path: str) -> str:
    """The text of a file, given by its name in the group or by a path that ends in `.yaml`.

    Raises:
        ValueError: there is none of that name, or no such file, or it cannot be read.

    >>> text_of("study", "smoek")
    Traceback (most recent call last):
    ValueError: there is no study smoek; did you mean smoke? (or give the path of a .yaml file)
    """
    path = Path(name_or_path)
    is_path = path.suffix in (".yaml", ".yml")
    if is_path and not path.is_file():
        others = {name: name for name in names(group)}
        others |= {file.stem: str(file) for file in path.parent.glob("*.y*ml") if file.is_file()}
        near = [f"did you mean {others[name]}?" for name in get_close_matches(path.stem, others)]
        where = f"check the path; it was looked for in {path.absolute().parent}"
        raise ValueError(f"there is no file {path}; {[*near, where][0]}")
    if not is_path and name_or_path not in names(group):
        hint = nearest(name_or_path, names(group), "there are")
        what = f"{'search' if group == 'tune' else group} {name_or_path}"
        raise ValueError(f"there is no {what}; {hint} (or give the path of a .yaml file)")
    file = path if is_path else shipped(group) / f"{name_or_path}.yaml"
    try:
        return str(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name_or_path} cannot be read: {error}") from error


def read(group: str, name_or_path: str) -> Any:
    """The content of a file as plain containers, with unresolved references such as `${seed}`.

    Raises:
        ValueError: as `text_of`, or it is no yaml.
    """
    return content_of(text_of(group, name_or_path), name_or_path)


def plan_name(name_or_path: str) -> str:
    """The name of a study or search: of its file, of `study.yaml` and `search.yaml` of the folder.

    >>> plan_name("smoke"), plan_name("mine.yaml"), plan_name("experiments/freezing/study.yaml")
    ('smoke', 'mine', 'freezing')
    """
    path = Path(name_or_path)
    is_in_folder = path.name in ("study.yaml", "search.yaml")
    return path.resolve().parent.name if is_in_folder else path.stem


def mistakes_of_every_run(content: dict[Any, Any]) -> list[str]:
    """Errors in the overrides and seeds of a file, which apply to every run."""
    mistakes, seeds = plan_mistakes(content), content.get("seeds", [0])
    if not are_overrides(content.get("overrides", [])):
        mistakes.append("overrides must be a list such as [encoder=tiny, 'site=[tokens]']")
    bounds = BOUNDS_OF_ANY["seed"]
    if (
        not (isinstance(seeds, list) and seeds)
        or any(type(seed) is not int or bounds.refusal(seed) for seed in seeds)
        or len(set(seeds)) < len(seeds)
    ):
        mistakes.append(
            f"seeds must be different whole numbers from 0 to {bounds.most}, at least one, got "
            f"{str(seeds)[:80]}"
        )
    return mistakes


def are_overrides(value: Any) -> bool:
    """Whether it is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def mistakes_of_one_of_several(cfg: DictConfig, what: str) -> list[str]:
    """Keys that a run of a study or search (`what`) may not set: `seed`, `rerun`."""
    mistakes = []
    if cfg.threads is None:
        mistakes.append(f"threads must be a number in a {what}: scores depend on it; use threads=1")
    if cfg.rerun:
        mistakes.append("rerun=true would forget what is done; delete the folders of the runs")
    if cfg.seed != 0:
        mistakes.append(f"seed={cfg.seed} is for a single run; a {what} has its own list, seeds")
    return mistakes
