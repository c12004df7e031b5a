"""The sources of settings, and the errors about invalid ones."""

from pathlib import Path
from typing import Self

import pytest
from pydantic import BaseModel, Field, SecretBytes, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from daybook.runtime.settings import Settings, SettingsError, load_settings


class Journal(BaseModel):
    """A table of its own."""

    dir: Path = Path("journal")
    group_bytes: int = 1024


class User(BaseModel):
    """A table with a secret."""

    name: str = ""
    password: SecretStr = SecretStr("")


class Sample(Settings):
    """Settings of no process in particular."""

    model_config = SettingsConfigDict(env_prefix="SAMPLE_")

    port: int = Field(default=3181, ge=0, le=65_535, description="where clients connect")
    password: SecretStr = SecretStr("")
    journal: Journal = Journal()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that sets everything."""
    path = tmp_path / "sample.toml"
    path.write_text('port = 1\n[journal]\ndir = "from-file"\ngroup_bytes = 1\n')
    return path


def test_flags_win_over_environment_over_file_over_defaults(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_settings(Sample).port == 3181
    assert load_settings(Sample, file).port == 1
    monkeypatch.setenv("SAMPLE_PORT", "2")
    assert load_settings(Sample, file).port == 2
    assert load_settings(Sample, file, {"port": 3}).port == 3
    assert load_settings(Sample, file, {"port": None}).port == 2


def test_tables_are_merged_value_by_value(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLE_JOURNAL__GROUP_BYTES", "2")
    assert load_settings(Sample, file).journal == Journal(dir=Path("from-file"), group_bytes=2)
    assert load_settings(Sample, None).journal == Journal(group_bytes=2)


def test_an_instance_made_directly_ignores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLE_PORT", "2")
    assert Sample().port == 3181


def test_all_wrong_settings_are_named_with_origin_and_range(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMPLE_PORT", "70000")
    monkeypatch.setenv("SAMPLE_JOURNAL__GROUP_BYTES", "many")
    with pytest.raises(SettingsError) as raised:
        load_settings(Sample, file)
    port, group = str(raised.value).splitlines()
    assert port == (
        "port = '70000' (environment variable SAMPLE_PORT): "
        "Input should be less than or equal to 65535 [where clients connect]"
    )
    assert group.startswith(
        "journal.group_bytes = 'many' (environment variable SAMPLE_JOURNAL__GROUP_BYTES): "
    )


def test_an_unknown_setting_is_refused_with_the_nearest_name(file: Path) -> None:
    file.write_text("prot = 1")
    with pytest.raises(
        SettingsError, match=r"prot \(file .*sample.toml\): no such setting; did you mean 'port'\?"
    ):
        load_settings(Sample, file)


def test_a_flag_is_named_as_it_was_typed() -> None:
    with pytest.raises(
        SettingsError, match=r"port = -1 \(flag --port\): Input should be greater than or equal to 0"
    ):
        load_settings(Sample, None, {"port": -1})


class Secrets(Settings):
    """Settings with secrets of every kind."""

    optional: SecretStr | None = None
    several: list[SecretBytes] = Field(default_factory=list)
    user: User = User()
    port: int = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.port == 1:
            raise ValueError("port is taken")
        return self


@pytest.mark.parametrize(
    "flags",
    [
        {"optional": [b"hunter2"]},
        {"several": "hunter2"},
        {"user": {"password": ["hunter2"]}},
        {"user": "hunter2"},
        {"port": 1, "optional": "hunter2"},
    ],
)
def test_a_secret_is_not_printed(flags: dict[str, object]) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(Secrets, None, flags)
    assert "hunter2" not in str(raised.value)


def test_a_setting_that_is_a_secret_is_named() -> None:
    with pytest.raises(
        SettingsError, match=r"^password \(flag --password\): Input should be a valid string$"
    ):
        load_settings(Sample, None, {"password": [b"hunter2"]})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml cannot be read: No such file"):
        load_settings(Sample, tmp_path / "nowhere.toml")


def test_a_file_with_invalid_toml_is_named(file: Path) -> None:
    file.write_text("port: 1")
    with pytest.raises(SettingsError, match=r"sample\.toml is not valid TOML: .*line 1"):
        load_settings(Sample, file)


def test_an_environment_variable_with_invalid_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLE_JOURNAL", "{")
    with pytest.raises(SettingsError, match=r'"journal".*write JSON'):
        load_settings(Sample)
