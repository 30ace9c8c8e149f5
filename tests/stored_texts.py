"""Texts that a test compares whole with a stored file, `tests/texts/<name>`.

`ISOTRAIN_REWRITE=1 pytest PATH` writes the files anew; read the difference before you commit it.
"""

import os
import re
from html import unescape
from pathlib import Path

TEXTS = Path(__file__).with_name("texts")


def same_text(name, text):
    """Assert that a text is the stored one."""
    if os.environ.get("ISOTRAIN_REWRITE"):
        TEXTS.mkdir(exist_ok=True)
        (TEXTS / name).write_text(text, encoding="utf-8")
    assert text == (TEXTS / name).read_text(encoding="utf-8")


def text_of(page):
    """What a reader sees of a page: without style, scripts, tags and charts."""
    body = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    body = re.sub(r"\s*</t[dh]>\s*", " | ", body)
    body = re.sub(
        r"</?(p|li|h\d|tr|dt|dd|summary|caption|option|figcaption|pre)\b[^>]*>", "\n", body
    )
    lines = (" ".join(unescape(re.sub(r"<[^>]+>", "", line)).split()) for line in body.split("\n"))
    return "\n".join(filter(None, lines)) + "\n"
