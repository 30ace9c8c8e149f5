"""Texts that a test compares whole with a stored file, `tests/texts/<name>`.

`ISOTRAIN_REWRITE=1 pytest PATH` writes the files anew; read the difference before you commit it.
"""

import os
from pathlib import Path

TEXTS = Path(__file__).with_name("texts")


def same_text(name, text):
    """Assert that a text is the stored one."""
    if os.environ.get("ISOTRAIN_REWRITE"):
        TEXTS.mkdir(exist_ok=True)
        (TEXTS / name).write_text(text, encoding="utf-8")
    assert text == (TEXTS / name).read_text(encoding="utf-8")
