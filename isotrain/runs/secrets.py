"""Redact secrets from everything that is written, logged or printed."""

import os
import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

HIDDEN = "<redacted>"  # in place of a secret
WORDS = r"(pass(word|wd|phrase)?|pwd|secrets?|credentials?|auth|authorization)"
KEYS = r"(api|access|private|secret|wandb|ssh)_?keys?"
SECRET_KEY = re.compile(
    rf"(^|_)({WORDS}|{KEYS}|token)$|(^|_)secret_|(access|auth|api|hf)_?tokens$", re.IGNORECASE
)
TOKEN_OF_TEXT = re.compile(r"(pad|cls|sep|mask|unk|bos|eos)_token$", re.IGNORECASE)
SECRET_VARIABLE = re.compile(
    r"(^|_)(TOKEN|PASS(WORD|WD)?|PWD|SECRET|CREDENTIALS?|(API|ACCESS|PRIVATE)_?KEY)($|_)"
    r"|API_?KEY",
    re.IGNORECASE,
)
NO_SECRETS = {"PWD", "OLDPWD"}
OVERRIDE = re.compile(r"([+~]*(?:\w+\.)*)(\w+)=(.+)", re.DOTALL)  # as of a command line
LARGEST = 1e5  # a smaller number is a setting: a class weight, a cost of a token
SHORTEST = 8  # a shorter value of a secret variable would hide ordinary words
KNOWN_FORMS = re.compile(
    r"\b(hf_|wandb_v\d+_|gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}"
    r"|(?<=://)[^/\s]+(?=@)"  # who is asking, in an address
    r"|[?&](api_key|apikey|token|access_token|key)=[^&\s]+"
    r"|(?<=[Bb]earer )\S{8,}"
)


def redacted(content: Any) -> Any:
    """A copy of plain content without secrets.

    Hidden are the values of keys that name one (`api_key`, `hf_token`; not `pad_token`; no numbers
    below 100,000), and, wherever they occur in a text, the values of environment variables that
    name one, tokens of known forms, and `user:password` in addresses.
    The value of an override that names one (`logger.x.api_key=…`) is hidden, a reference is not.

    >>> redacted(["+logger.x.api_key=abc", "logger.x.api_key=${oc.env:KEY}"])
    ['+logger.x.api_key=<redacted>', 'logger.x.api_key=${oc.env:KEY}']
    >>> redacted({"api_key": "abc", "n_tokens": 3, "url": "https://me:pw@host/x"})
    {'api_key': '<redacted>', 'n_tokens': 3, 'url': 'https://<redacted>@host/x'}
    """
    return _redacted(content, _secrets())


def _is_secret(key: str, value: Any) -> bool:
    is_named = SECRET_KEY.search(key) and not TOKEN_OF_TEXT.search(key)
    return bool(is_named) and not isinstance(value, bool | None) and not _is_small_number(value)


def _is_small_number(value: Any) -> bool:
    """Whether a value, or what an override says, is a number below `LARGEST`."""
    with suppress(ValueError, TypeError):
        return abs(float(value)) < LARGEST
    return False


def _redacted(content: Any, secrets: Sequence[str]) -> Any:
    if isinstance(content, Mapping):  # and those of OmegaConf
        return {
            key: HIDDEN if _is_secret(str(key), value) else _redacted(value, secrets)
            for key, value in content.items()
        }
    if isinstance(content, str):
        override = OVERRIDE.fullmatch(content)
        if override and _is_secret(override[2], override[3]) and "${" not in content:
            return f"{override[1]}{override[2]}={HIDDEN}"
        for secret in secrets:
            content = content.replace(secret, HIDDEN)
        return KNOWN_FORMS.sub(HIDDEN, content)
    if isinstance(content, Sequence | Set) and not isinstance(content, bytes | bytearray):
        return [_redacted(value, secrets) for value in content]
    return content


def _secrets() -> list[str]:
    """The values of environment variables that name a secret, the longest first."""
    values = [
        value
        for name, value in os.environ.items()
        if SECRET_VARIABLE.search(name) and name not in NO_SECRETS and len(value) >= SHORTEST
    ]
    return sorted(values, key=len, reverse=True)
