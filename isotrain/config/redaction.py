"""Secrets kept out of everything that is written, logged or printed."""

from __future__ import annotations

import os
import re
from typing import Any

HIDDEN = "<redacted>"
SECRET_KEY = re.compile(
    r"(^|_)(api_?key|password|passwd|secret|credentials?|(access|auth|api|hf|hub|bearer)_token)$"
    r"|^token$",
    re.IGNORECASE,
)
SECRET_VARIABLE = re.compile(r"API_?KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
SHORTEST = 8  # a shorter value of a secret variable would hide ordinary words
KNOWN_FORMS = re.compile(r"\bhf_[A-Za-z0-9]{20,}|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")


def redacted(content: Any) -> Any:
    """A copy of plain content without secrets.

    Hidden are the values of keys that name one (`api_key`, `password`, `hf_token`; not
    `pad_token` or `n_tokens`), and, wherever they occur in a text, the values of environment
    variables that name one, hub tokens, and `user:password` in addresses.

    >>> redacted({"api_key": "abc", "n_tokens": 3, "url": "https://me:pw@host/x"})
    {'api_key': '<redacted>', 'n_tokens': 3, 'url': 'https://<redacted>@host/x'}
    """
    if isinstance(content, dict):
        return {
            key: HIDDEN
            if isinstance(value, str) and SECRET_KEY.search(str(key))
            else redacted(value)
            for key, value in content.items()
        }
    if isinstance(content, list | tuple):
        return [redacted(value) for value in content]
    return _without_secrets(content) if isinstance(content, str) else content


def _without_secrets(text: str) -> str:
    for name, value in os.environ.items():
        if SECRET_VARIABLE.search(name) and len(value) >= SHORTEST:
            text = text.replace(value, HIDDEN)
    return KNOWN_FORMS.sub(HIDDEN, text)
