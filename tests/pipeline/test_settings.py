"""What the settings promise: where they come from, what they refuse and what they never show."""

import logging
import traceback
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from embedctl.pipeline.errors import ConfigurationError
from embedctl.pipeline.settings import Settings, load_settings


def refusal(folder: Path, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(folder, environ or {})
    return str(caught.value)


def test_without_a_file_everything_has_a_default_and_the_state_is_in_the_working_directory(tmp_path: Path):
    settings = load_settings(tmp_path, {})

    assert settings.home == tmp_path / ".embedctl"
    assert (settings.index, settings.model, settings.device) == ("docs", "v1", "auto")
    assert settings.ready_tokens == 16 * settings.batch_tokens
    assert settings.cache_bytes == 1024**3
    assert settings.ledger_url == f"sqlite:///{tmp_path}/.embedctl/ledger.db"


def test_reading_the_settings_creates_nothing(tmp_path: Path):
    load_settings(tmp_path, {})

    assert list(tmp_path.iterdir()) == []


def test_the_file_is_found_upward_and_the_state_lies_beside_it(tmp_path: Path):
    (tmp_path / "embedctl.toml").write_text('index = "papers"')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    settings = load_settings(below, {})

    assert settings.index == "papers"
    assert settings.home == tmp_path / ".embedctl"


def test_the_nearest_file_wins(tmp_path: Path):
    (tmp_path / "embedctl.toml").write_text('index = "far"')
    below = tmp_path / "below"
    below.mkdir()
    (below / "embedctl.toml").write_text('index = "near"')

    assert load_settings(below, {}).index == "near"


def test_the_working_directory_and_the_environment_of_the_process_are_the_default(home: Path, monkeypatch):
    monkeypatch.setenv("EMBEDCTL_WORKERS", "7")

    settings = load_settings()

    assert settings.workers == 7
    assert settings.home == home / ".embedctl"


def test_the_environment_overrides_the_file(tmp_path: Path):
    (tmp_path / "embedctl.toml").write_text("workers = 2\nlease_s = 60")

    settings = load_settings(tmp_path, {"EMBEDCTL_WORKERS": "5"})

    assert (settings.workers, settings.lease_s) == (5, 60)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path):
    assert load_settings(tmp_path, {"EMBEDCTL_WORKERS": "", "EMBEDCTL_HOME": ""}).workers == 3


def test_a_path_of_the_file_counts_from_its_folder_and_one_of_the_environment_from_here(tmp_path: Path):
    (tmp_path / "embedctl.toml").write_text('home = "state"\ndatabase_url = "sqlite:///books/ledger.db"')
    below = tmp_path / "below"
    below.mkdir()

    assert load_settings(below, {}).home == tmp_path / "state"
    assert load_settings(below, {}).ledger_url == f"sqlite:///{tmp_path}/books/ledger.db"
    assert load_settings(below, {"EMBEDCTL_HOME": "mine"}).home == below / "mine"
    assert load_settings(below, {"EMBEDCTL_HOME": "/srv/state"}).home == Path("/srv/state")


def test_the_database_url_keeps_its_password_for_connecting(tmp_path: Path):
    url = "postgresql://ann:s3cret@db/ledger"

    assert load_settings(tmp_path, {"EMBEDCTL_DATABASE_URL": url}).ledger_url == url


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [("0", 0), ("1048576", 1 << 20), ('"1GiB"', 1 << 30), ('"64 MiB"', 64 << 20), ('"5MB"', 5_000_000)],
)
def test_a_size_is_a_number_of_bytes_or_has_a_unit(tmp_path: Path, written: str, size_bytes: int):
    (tmp_path / "embedctl.toml").write_text(f"cache_bytes = {written}")

    assert load_settings(tmp_path, {}).cache_bytes == size_bytes
    assert load_settings(tmp_path, {"EMBEDCTL_CACHE_BYTES": written.strip('"')}).cache_bytes == size_bytes


def test_settings_cannot_be_changed(tmp_path: Path):
    with pytest.raises(ValidationError):
        load_settings(tmp_path, {}).workers = 9  # type: ignore[misc]


def test_the_constructor_takes_its_arguments_and_nothing_from_the_environment(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("EMBEDCTL_WORKERS", "7")

    assert Settings(home=tmp_path).workers == 3


def test_a_bad_variable_is_named_with_its_value_and_what_is_allowed(tmp_path: Path):
    message = refusal(tmp_path, {"EMBEDCTL_BATCH_TOKENS": "abc"})

    assert message == (
        "EMBEDCTL_BATCH_TOKENS='abc' is not an integer; allowed: a whole number of tokens, 256 or more"
    )


def test_a_bad_value_of_the_file_is_named_with_the_file(tmp_path: Path):
    file = tmp_path / "embedctl.toml"
    file.write_text("max_prune = 20")

    assert refusal(tmp_path) == f"max_prune=20 in {file} is too large; allowed: a share, 0 to 1"


def test_all_bad_values_are_named_at_once_one_a_line(tmp_path: Path):
    (tmp_path / "embedctl.toml").write_text('workers = 0\ndevice = "gpu"')

    lines = refusal(tmp_path, {"EMBEDCTL_LEASE_S": "soon"}).splitlines()

    assert [line.split("=")[0] for line in lines] == ["workers", "EMBEDCTL_LEASE_S", "device"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("batch_tokens", "255"),
        ("batch_tokens", "1.5"),
        ("ready_tokens", "16383"),
        ("workers", "0"),
        ("workers", "65"),
        ("lease_s", "nan"),
        ("lease_s", "29"),
        ("request_timeout_s", "0"),
        ("request_timeout_s", "90"),
        ("device", "cuda:x"),
        ("num_threads", "0"),
        ("max_step_tokens", "0"),
        ("cache_bytes", "-1"),
        ("cache_bytes", "1 parsec"),
        ("max_document_bytes", "0"),
        ("max_prune", "1.1"),
        ("max_prune", "inf"),
        ("store_idle_s", "0"),
        ("encoding", "klingon"),
        ("encoding", "hex"),
        ("index", "docs__v2"),
        ("index", "../docs"),
        ("index", "x" * 64),
        ("model", "v 2"),
        ("database_url", "mysql://host/db"),
        ("database_url", "sqlite:///:memory:"),
        ("hub_token", "two words"),
    ],
)
def test_a_value_outside_what_is_allowed_is_refused_in_one_line(tmp_path: Path, key: str, value: str):
    message = refusal(tmp_path, {f"EMBEDCTL_{key.upper()}": value})

    assert key in message.lower()
    assert "; allowed: " in message
    assert "\n" not in message


@pytest.mark.parametrize("written", ["true", '"many"', "[1]", "2026-01-01", "1.5"])
def test_a_value_of_the_wrong_type_is_not_bent_into_a_number(tmp_path: Path, written: str):
    (tmp_path / "embedctl.toml").write_text(f"workers = {written}")

    assert refusal(tmp_path).startswith("workers=")


def test_values_that_contradict_each_other_are_refused_also_against_a_default(tmp_path: Path):
    assert refusal(tmp_path, {"EMBEDCTL_LEASE_S": "20"}) == (
        "request_timeout_s=30 (the default) is not below lease_s=20; "
        "allowed: a number of seconds above 0 and below `lease_s`"
    )


def test_an_unknown_key_is_an_error_that_names_the_nearest(tmp_path: Path):
    file = tmp_path / "embedctl.toml"
    file.write_text("batch-token = 5")

    assert refusal(tmp_path) == f"batch-token in {file} is not a setting; did you mean batch_tokens?"


def test_a_key_like_no_other_is_answered_with_the_list(tmp_path: Path):
    (tmp_path / "embedctl.toml").write_text("zzzzzz = 5")

    assert "the settings are home, index, model," in refusal(tmp_path)


def test_an_unknown_variable_is_ignored_with_a_warning_that_names_the_nearest(tmp_path: Path, caplog):
    with caplog.at_level(logging.WARNING):
        load_settings(tmp_path, {"EMBEDCTL_WORKER": "s3cret", "EMBEDCTL_TEST_DATA": "/data", "PATH": "/bin"})

    assert caplog.messages == [
        "EMBEDCTL_WORKER is ignored: it is not a setting; did you mean EMBEDCTL_WORKERS?"
    ]


@pytest.mark.parametrize("content", [b"workers = ", b"workers = 1\nworkers = 2", b"index = '\xff'"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes):
    file = tmp_path / "embedctl.toml"
    file.write_bytes(content)

    assert refusal(tmp_path).startswith(f"{file} is not valid TOML: ")


def test_a_working_directory_that_is_gone_is_one_clear_line(home: Path):
    home.rmdir()

    with pytest.raises(ConfigurationError, match="The working directory is gone; change to another"):
        load_settings()


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("database_url", "no-such-scheme://ann:hunter2@db"),
        ("database_url", "hunter2"),
        ("hub_token", "hunter2 and more"),
        ("hub_token", "hunter2\nhunter2"),
    ],
)
def test_an_invalid_secret_is_not_shown_in_the_error_nor_in_its_traceback(
    tmp_path: Path, key: str, wrong: str
):
    with pytest.raises(ConfigurationError) as caught:
        load_settings(tmp_path, {f"EMBEDCTL_{key.upper()}": wrong})

    shown = "".join(traceback.format_exception(caught.value))
    assert f"EMBEDCTL_{key.upper()} (value hidden) is not" in shown
    assert "hunter2" not in shown


def test_a_secret_of_the_wrong_type_is_not_shown(tmp_path: Path):
    (tmp_path / "embedctl.toml").write_text('hub_token = ["hunter2"]')

    assert "hunter2" not in refusal(tmp_path)


def test_a_valid_secret_is_not_shown(tmp_path: Path):
    environ = {"EMBEDCTL_HUB_TOKEN": "hunter2", "EMBEDCTL_DATABASE_URL": "postgresql://ann:hunter2@db/ledger"}

    settings = load_settings(tmp_path, environ)

    assert settings.hub_token == SecretStr("hunter2")
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump_json()}"


def test_another_bad_value_does_not_bring_a_secret_into_the_error(tmp_path: Path):
    environ = {"EMBEDCTL_HUB_TOKEN": "hunter2", "EMBEDCTL_WORKERS": "none"}

    assert "hunter2" not in refusal(tmp_path, environ)


@pytest.mark.parametrize("key", Settings.model_fields)
def test_every_setting_says_what_it_is_for_and_what_is_allowed(key: str):
    field = Settings.model_fields[key]

    assert field.description is not None
    assert field.description.endswith(".")
    assert field.json_schema_extra["allowed"]  # type: ignore[index]
