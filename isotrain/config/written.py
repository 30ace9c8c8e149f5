"""An override in the grammar of Hydra's command line: its key, and how it holds a value."""

from __future__ import annotations

import json
import re
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString

WORD = r"[A-Za-z_][A-Za-z0-9_./-]*"  # a text that needs no quotes
READ_AS_VALUES = ("true", "false", "null", "nan", "inf")  # in any case, unless they are quoted


def key_of(override: str) -> str:
    """The key of an override: `a.b` of `+a.b=[1,2]` and of `~a.b`."""
    return override.lstrip("+~").partition("=")[0]


def written(value: Any) -> str:
    r"""The text after the `=` of an override that gives this value, and nothing else.

    Args:
        value: a number, a text, true, false, None, or a list of these and of lists.

    Raises:
        ValueError: a value of another kind, such as a mapping.

    >>> written([1e-5, True, None, "a b", "it's", "true", ["x", 2]])
    "[1e-05,true,null,'a b','it\\'s','true',[x,2]]"
    """
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, str):
        if re.fullmatch(WORD, value) and value.lower() not in READ_AS_VALUES:
            return value
        return QuotedString(value, Quote.single).with_quotes()
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float):
        return str(value)
    raise ValueError(
        f"{value!r} is no value that an override can give: a number, a text, true, false, null or "
        "a list of these; give the keys of a mapping one by one, as a.b=1"
    )
