"""`sweep=NAME`: files of values for `-m`, what they may hold, and what is said of others."""

from __future__ import annotations

import pytest
import yaml

from isotrain.config.sweep import check_sweep, with_sweeps


@pytest.fixture
def own(tmp_path):
    """`own(name, content)`: the folder of configurations with such a sweep file."""

    def written(name, content):
        (tmp_path / "sweep").mkdir(exist_ok=True)
        (tmp_path / "sweep" / f"{name}.yaml").write_text(yaml.safe_dump(content))
        return str(tmp_path)

    return written


def test_two_files_are_crossed_and_the_line_comes_first(own):
    own("rates", {"optimizer.lr": [1e-5, 2e-5], "seed": "range(3)"})
    folder = own("sizes", {"data.batch_size": [16], "seed": [7]})
    given = ["sweep=[rates,sizes]", "optimizer.lr=1e-4"]
    found = with_sweeps(given, True, folder)
    assert found == ["seed=7", "data.batch_size=16", "optimizer.lr=1e-4"]


@pytest.mark.parametrize(
    ("line", "multirun", "why"),
    [
        ("sweep=seeds", False, "add -m to start them"),
        ("sweep=[seeds", True, "cannot be read"),
        ("sweep=seeds,rates", True, "must be one name"),
        ("sweep=sedes", True, "did you mean seeds?"),
        ("sweep=empty", True, "must map keys to lists of values"),
        ("sweep=listed", True, "must map keys to lists of values"),
        ("sweep=single", True, "gives seed the value 3; give a list such as [3]"),
        ("sweep=none", True, "gives seed the value []"),
        ("sweep=deep", True, "sweep=deep: "),
    ],
)
def test_what_is_no_sweep_is_refused_by_name(own, line, multirun, why):
    own("empty", {})
    own("listed", [1, 2])
    own("single", {"seed": 3})
    own("none", {"seed": []})
    folder = own("deep", {"seed": [{"a": object.__name__, "b": b"\x00"}]})
    with pytest.raises(ValueError, match=r"sweep=") as told:
        with_sweeps([line], multirun, folder)
    assert why in str(told.value)
    _jobs, rest, mistakes = check_sweep([line, "task=wic"], folder, multirun)
    assert rest == ["task=wic"]
    assert mistakes[0] == str(told.value)
