"""Pages: links lead somewhere, commands are ones that run, examples work.

Here commands are judged as they stand; `tests/test_docs_commands.py` runs them in a small form.
"""

import re

import pytest

from isotrain.config.analysis import ANALYSIS
from isotrain.config.check import check
from isotrain.config.compose import compose_run, wrong_overrides
from isotrain.config.shipped import names
from tests.docs_pages import ACTIONS, PAGES, ROOT, RUN, commands, fences, name_of, write_files

OF_PLUGINS = ("plugins.md", "lightning.md", "README.md")  # their examples run in tests/plugins


def anchors(page):
    """The anchors of a page's headings, as they are made where it is shown."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_is_enough_to_look_at():
    assert len(PAGES) >= 60
    assert len(commands()) >= 60


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r'(?:\]\(|src=")([^)"]+)[)"]', page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("arguments", commands())
def test_commands_are_ones_that_run(arguments, monkeypatch, tmp_path):
    """What they would be rejected for before a run: keys, values, names of what there is."""
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", "data")
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    command, *rest = arguments
    if command in ACTIONS:
        given = [text for text in rest if not text.startswith("-")]
        known = (*names("studies"), *names("searches"))
        assert not given or given[0] in known or given[0].endswith(".yaml") or RUN.match(given[0])
        assert not given or (ROOT / given[0]).is_file() == given[0].startswith("experiments/")
    elif command == "analyze" and rest[0] == "keys":
        assert len(rest) == 2
    elif command == "analyze" and rest[0] != "list":
        overrides = [text for text in rest if not RUN.fullmatch(text)]
        ANALYSIS.register()
        check(compose_run(overrides, root="analyze"), ANALYSIS)
    elif command == "train" and "-m" in rest:
        assert wrong_overrides([text for text in rest if text != "-m"]) == []
    elif command == "train" and rest != ["--help"]:
        overrides = [text for text in rest if "=" in text and not RUN.fullmatch(text)]
        config_dir = rest[rest.index("--config-dir") + 1] if "--config-dir" in rest else None
        check(compose_run(overrides, config_dir))
    else:
        assert command in ("analyze", "train", "export", "doctor", "evaluate")


@pytest.mark.parametrize(
    ("page", "code"),
    [
        pytest.param(page, code, id=f"{name_of(page)} {number}")
        for page in PAGES
        for number, code in enumerate(fences(page, "python"))
        if "runs/" not in code and page.name not in OF_PLUGINS
    ],
)
def test_examples_run(page, code):
    exec(compile(code, str(page), "exec"), {})
