"""What only imported parts and data can tell of a configuration."""

import pytest

from isotrain.config.compose import compose_run
from isotrain.training.requirements import check, revision

COMMON = ("task=wic", "encoder=tiny", "source=demo")


def test_parts_and_data_are_judged_before_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sound = compose_run(COMMON)
    check(sound)
    assert revision(sound).startswith("demo")
    for more, told in (
        (["isotropy=zca", "+isotropy.colour=red"], "isotropy.colour"),
        (["source=local", "source.root=nowhere"], "nowhere"),
    ):
        with pytest.raises(ValueError, match=told):
            check(compose_run([*COMMON, *more]))
