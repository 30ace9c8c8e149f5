"""Check the keys of a configuration and the arguments of its parts, before anything is built."""

from dataclasses import fields
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError
from pydantic import Field

from isotrain.arguments import adapter_of, violation
from isotrain.config.compose import ConfigError, check_method, dotted, method_of, plain
from isotrain.config.parts import argument_errors, parts_of
from isotrain.config.schema import RUN, Schema
from isotrain.console import nearest


def check(cfg: DictConfig, schema: Schema = RUN) -> None:
    """Raise a ConfigError with a line for each invalid key, value or argument.

    The modules of all parts are imported. Rules across parts are checked when they are built
    (`isotrain.training.rules`).
    """
    unresolved: dict[str, Any] = OmegaConf.to_container(cfg, resolve=False)  # type: ignore[assignment]
    if missing_keys := sorted(key for key, value in dotted(unresolved).items() if value == "???"):
        raise ConfigError("\n".join(f"{key} has no value; set {key}=..." for key in missing_keys))
    try:
        content = plain(cfg)
    except InterpolationResolutionError as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{error.full_key}: {reason}; set it, or {error.full_key}=...") from error
    errors: list[str] = []
    for section, config_class in schema.sections.items():
        node = content.get(section, {}) if section else content
        legal = {field.name: field for field in fields(config_class)}
        errors += [
            f"{section or schema.label} has no key {key}; {nearest(key, list(legal))}"
            for key in sorted(set(map(str, node)) - set(legal))
        ]
        for name, field in legal.items():
            adapter = adapter_of(Annotated[float, Field(**field.metadata)] | None)
            if field.metadata and (problem := violation(adapter, node.get(name))):
                errors.append(f"{section and section + '.'}{name} {problem}")
    for path, node in parts_of(content):
        errors += argument_errors(path, node)
    if schema is RUN and not errors:
        check_method(method_of(content))
    if errors:
        raise ConfigError("\n".join(errors))
