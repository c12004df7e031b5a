"""Settings: flags override environment variables, which override a TOML file, which overrides defaults.

A process with an invalid or unknown setting reports each such setting with its origin and the allowed values, all of them
at once, before it does anything else.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as SourceError


class SettingsError(Exception):
    """One or more settings are invalid; the message has a line for each."""


class Settings(BaseSettings):
    """Base of a process's settings. A subclass gives `env_prefix` in its `model_config`, and fields with descriptions.

    An instance made directly takes its arguments and defaults only; `load_settings` reads the other sources.
    """

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        extra="forbid", frozen=True, env_nested_delimiter="__", nested_model_default_partial_update=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic passes these by name
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - not a source here
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - not a source here
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - not a source here
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only: an instance in a test must not depend on the machine."""
        return (init_settings,)


S = TypeVar("S", bound=Settings)


def load_settings(kind: type[S], file: Path | None = None, flags: Mapping[str, object] | None = None) -> S:
    """Read settings of `kind` from flags, environment, `file` (TOML) and defaults, in this order of precedence.

    A flag that is None was not given. Raises SettingsError.
    """
    from_file = _read_toml(file) if file else {}
    from_flags = {name: value for name, value in (flags or {}).items() if value is not None}
    try:
        from_environment = EnvSettingsSource(kind)()
    except SourceError as error:
        msg = f"{error}: write JSON in this environment variable ({error.__cause__})"
        raise SettingsError(msg) from error
    values: dict[str, Any] = {}
    for source in (from_file, from_environment, from_flags):
        values = _merge(values, source)
    try:
        return kind(**values)
    except ValidationError as error:
        origins = _Origins(kind, file, from_file, from_environment, from_flags)
        msg = "\n".join(_explain(kind, each, origins) for each in error.errors())
        raise SettingsError(msg) from None  # pydantic's own text would contain secrets


class _Origins:
    """The origin of each value, for messages."""

    def __init__(self, kind: type[Settings], file: Path | None, *sources: Mapping[str, object]) -> None:
        """`sources` are the values of file, environment and flags."""
        self._prefix = kind.model_config.get("env_prefix", "")
        self._file = file
        self._from_file, self._from_environment, self._from_flags = sources

    def name(self, location: tuple[str | int, ...]) -> str:
        """The source of the value at `location`."""
        first = str(location[0]) if location else ""
        if first in self._from_flags:
            return f"flag --{first.replace('_', '-')}"
        if first in self._from_environment:
            variable = "__".join([f"{self._prefix}{first}", *map(str, location[1:])]).upper()
            return f"environment variable {variable}" if variable in os.environ else "environment"
        if first in self._from_file:
            return f"file {self._file}"
        return f"not given; set it by flag, {self._prefix.upper()}{first.upper()} or file"


def _explain(kind: type[Settings], error: ErrorDetails, origins: _Origins) -> str:
    """One line about one setting: its name, its origin, its value unless secret, and what is allowed."""
    location = error["loc"]
    name = ".".join(map(str, location)) or "settings"
    where = origins.name(location)
    if error["type"] == "extra_forbidden":
        close = difflib.get_close_matches(name, kind.model_fields, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(kind.model_fields)}"
        return f"{name} ({where}): no such setting; {hint}"
    field = kind.model_fields.get(str(location[0])) if location else None
    hidden = field is None or _has_secret(field.annotation) or error["type"] == "missing"
    value = "" if hidden else f" = {error['input']!r}"
    meaning = f" [{field.description}]" if field is not None and field.description else ""
    return f"{name}{value} ({where}): {error['msg']}{meaning}"


def _has_secret(annotation: Any) -> bool:
    """Whether a value of this type may contain a secret: in a union, a list, a model."""
    if isinstance(annotation, type) and issubclass(annotation, SecretStr | SecretBytes):
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(_has_secret(field.annotation) for field in annotation.model_fields.values())
    return any(_has_secret(part) for part in get_args(annotation))


def _read_toml(file: Path) -> dict[str, Any]:
    """The values of `file`. Raises SettingsError if it cannot be read."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"the settings file {file} cannot be read: {error.strerror}"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"the settings file {file} is not valid TOML: {error}"
    raise SettingsError(msg)


def _merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """`low` overlaid with `high`, table by table."""
    merged = dict(low)
    for name, value in high.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merge(merged[name], value) if both else value
    return merged
