"""Settings: `embedctl.toml` found upward from the working directory, overridden by `EMBEDCTL_*`.

Built once by the command line and passed down; nothing below it reads the environment.
"""

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from embedctl.pipeline.errors import ConfigurationError
from embedctl.pipeline.labels import INDEX_PATTERN, MAX_LENGTH, VERSION_PATTERN
from embedctl.pipeline.settings_errors import Origin, complaints, nearest

logger = logging.getLogger(__name__)

CONFIG_NAME = "embedctl.toml"
ENV_PREFIX = "EMBEDCTL_"
#: Variables of the test suite, which share the prefix and are no settings.
_TEST_PREFIX = "EMBEDCTL_TEST_"
#: How many batches may wait before the readers stop, unless `ready_tokens` says otherwise.
_READY_BATCHES = 16

_DATABASE_URL = re.compile(r"sqlite:///(?!:memory:).+|postgresql(\+psycopg)?://.+", re.DOTALL)
_SQLITE = "sqlite:///"


def _not_bool(value: object) -> object:
    if isinstance(value, bool):  # pydantic would read `true` as 1
        raise ValueError("is not a number")
    return value


def _database_url(value: SecretStr) -> SecretStr:
    if not _DATABASE_URL.fullmatch(value.get_secret_value()):
        raise ValueError("is not the URL of a database that embedctl can use")
    return value


def _token(value: SecretStr) -> SecretStr:
    # a line break in a header would end up in an error message of the HTTP client, token and all
    if not re.fullmatch(r"[!-~]+", value.get_secret_value()):
        raise ValueError("is not a token")
    return value


def _encoding(value: str) -> str:
    try:
        "a".encode(value)  # looks the codec up, and refuses those that are not for text
    except (LookupError, ValueError):
        raise ValueError("is not an encoding") from None
    return value


Count = Annotated[int, BeforeValidator(_not_bool)]
Number = Annotated[float, BeforeValidator(_not_bool)]
Bytes = Annotated[ByteSize, BeforeValidator(_not_bool)]
DatabaseUrl = Annotated[SecretStr, AfterValidator(_database_url)]
Token = Annotated[SecretStr, AfterValidator(_token)]
Encoding = Annotated[str, AfterValidator(_encoding)]


def _setting(description: str, allowed: str, **rules: Any) -> Any:
    """A field that can say what it is for and, when a value is refused, what is allowed."""
    return Field(description=description, json_schema_extra={"allowed": allowed}, **rules)


class Settings(BaseSettings):
    """What one process works with. `load_settings` reads it; the constructor takes only arguments."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        str_strip_whitespace=True,
        validate_default=True,
    )

    home: Path = _setting(
        "Folder of the ledger, the store and the cache; `.embedctl` beside the embedctl.toml that was found, "
        "else in the working directory.",
        "the path of a folder",
    )
    index: str = _setting(
        "Name of the index that commands work on.",
        "a letter or digit, then up to 62 letters, digits, `-` or `_`, without `__`",
        default="docs",
        pattern=INDEX_PATTERN,
        max_length=MAX_LENGTH,
    )
    model: str = _setting(
        "Label of the version that a new index begins with.",
        "a letter or digit, then up to 62 letters, digits, `.`, `-` or `_`, without `__`",
        default="v1",
        pattern=VERSION_PATTERN,
        max_length=MAX_LENGTH,
    )
    database_url: DatabaseUrl | None = _setting(
        "Where the ledger is; the SQLite file `ledger.db` in `home` when it is not set.",
        "sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE",
        default=None,
    )
    hub_token: Token | None = _setting(
        "Access token for private models on the Hugging Face hub.",
        "the token alone, without spaces or line breaks",
        default=None,
    )
    batch_tokens: Count = _setting(
        "Tokens in one batch of queued work.",
        "a whole number of tokens, 256 or more",
        default=16_384,
        ge=256,
    )
    ready_tokens: Count = _setting(
        "Tokens that may wait to be embedded before the readers stop; "
        f"{_READY_BATCHES} batches when it is not set.",
        "a whole number of tokens, `batch_tokens` or more",
        default_factory=lambda data: _READY_BATCHES * data["batch_tokens"],
    )
    workers: Count = _setting(
        "Threads that claim batches: one loads, one embeds, one writes.",
        "a whole number, 1 to 64",
        default=3,
        ge=1,
        le=64,
    )
    lease_s: Number = _setting(
        "Seconds after which a batch whose worker shows no progress is given to another.",
        "a number of seconds, 5 to 3600",
        default=90,
        ge=5,
        le=3600,
        allow_inf_nan=False,
    )
    request_timeout_s: Number = _setting(
        "Seconds after which a request to the store or the database is given up.",
        "a number of seconds above 0 and below `lease_s`",
        default=30,
        gt=0,
        allow_inf_nan=False,
    )
    device: str = _setting(
        "Device of the model; `auto` takes the GPU where there is one.",
        "auto, cpu or cuda",
        default="auto",
        pattern=r"^(auto|cpu|cuda)$",
    )
    num_threads: Count | None = _setting(
        "CPU threads of the engine; its own choice when it is not set.",
        "a whole number, 1 to 1024",
        default=None,
        ge=1,
        le=1024,
    )
    max_step_tokens: Count | None = _setting(
        "Most tokens in one execution on the device; the engine's own choice when it is not set.",
        "a whole number of tokens, 256 or more",
        default=None,
        ge=256,
    )
    cache_bytes: Bytes = _setting(
        "Size of the cache of vectors, in bytes; 0 turns it off.",
        'a whole number of bytes, or a size such as "512MiB"; 0 for no cache',
        default=1 << 30,
        ge=0,
    )
    max_document_bytes: Bytes = _setting(
        "Largest file or record that is read, in bytes; a larger one is reported as failed.",
        'a whole number of bytes, 1 or more, or a size such as "64MiB"',
        default=64 << 20,
        ge=1,
    )
    max_prune: Number = _setting(
        "Share of a source's documents that may vanish between two runs without being told to.",
        "a share, 0 to 1",
        default=0.2,
        ge=0,
        le=1,
        allow_inf_nan=False,
    )
    parse_timeout_s: Number = _setting(
        "Seconds that reading one HTML or PDF file may take; a file that takes longer is reported as failed.",
        "a number of seconds above 0",
        default=60,
        gt=0,
        allow_inf_nan=False,
    )
    store_idle_s: Number = _setting(
        "Seconds after which the embedded store's process ends when nobody is connected.",
        "a number of seconds, 1 or more",
        default=60,
        ge=1,
        allow_inf_nan=False,
    )
    encoding: Encoding | None = _setting(
        "Encoding of text files without a byte order mark; detected per file when it is not set.",
        "the name of a text encoding, such as utf-8, cp1252 or shift_jis",
        default=None,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only: `load_settings` reads the rest, so that it can say where a value came from."""
        return (init_settings,)

    @field_validator("ready_tokens")
    @classmethod
    def _holds_a_batch(cls, value: int, info: ValidationInfo) -> int:
        batch_tokens = info.data.get("batch_tokens", 0)
        if value < batch_tokens:
            raise ValueError(f"is below batch_tokens={batch_tokens}")
        return value

    @field_validator("request_timeout_s")
    @classmethod
    def _ends_within_the_lease(cls, value: float, info: ValidationInfo) -> float:
        # a request that outlives its worker's lease could land after another worker took the batch
        lease_s = info.data.get("lease_s", float("inf"))
        if value >= lease_s:
            raise ValueError(f"is not below lease_s={lease_s:g}")
        return value

    @property
    def ledger_url(self) -> str:
        """URL of the ledger's database, password included: for connecting, never for a message."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"{_SQLITE}{self.home / 'ledger.db'}"


class _Environment(EnvSettingsSource):
    """EMBEDCTL_* of a given mapping instead of the process's own."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(Settings)
        self.env_vars = {name.lower(): value for name, value in environ.items() if value}


def load_settings(cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the settings that hold in this folder and environment (those of the process unless given).

    Creates nothing. Raises ConfigurationError with one line per refused value: its key, where it was set, the
    value (never a secret's) and what is allowed.
    """
    folder = _working_directory(cwd)
    environ = os.environ if environ is None else environ
    file = find_config(folder)
    base = file.parent if file else folder
    from_file = _anchored(_read_config(file), base) if file else {}
    from_env = _anchored(_Environment(environ)(), folder)
    _warn_of_unknown_variables(environ)
    try:
        return Settings(**{"home": base / ".embedctl", **from_file, **from_env})
    except ValidationError as exc:
        origins = [Origin(from_env, ENV_PREFIX), Origin(from_file, file=file)]
        lines = complaints(exc, Settings.model_fields, origins)
        # not chained: the cause holds the refused values, secrets too
        raise ConfigurationError("\n".join(lines)) from None


def find_config(folder: Path) -> Path | None:
    """The `embedctl.toml` of the folder or of the nearest one above it."""
    candidates = (parent / CONFIG_NAME for parent in (folder, *folder.parents))
    return next((path for path in candidates if os.path.isfile(path)), None)  # False where access is denied


def _working_directory(cwd: Path | None) -> Path:
    try:
        return (cwd or Path.cwd()).resolve()
    except FileNotFoundError:
        raise ConfigurationError("The working directory is gone; change to another.") from None


def _read_config(file: Path) -> dict[str, Any]:
    try:
        return TomlConfigSettingsSource(Settings, toml_file=file)()
    except OSError as exc:
        raise ConfigurationError(f"{file} cannot be read: {exc.strerror}.") from exc
    except ValueError as exc:  # TOML syntax, or bytes that are not UTF-8
        raise ConfigurationError(f"{file} is not valid TOML: {exc}.") from exc


def _anchored(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make relative paths count from the folder, so that they mean the same wherever a command is started."""
    anchored = dict(values)
    home, url = values.get("home"), values.get("database_url")
    if isinstance(home, str):
        anchored["home"] = folder / Path(home).expanduser()
    if isinstance(url, str) and url.startswith(_SQLITE) and _DATABASE_URL.fullmatch(url):
        anchored["database_url"] = _SQLITE + str(folder / Path(url.removeprefix(_SQLITE)).expanduser())
    return anchored


def _warn_of_unknown_variables(environ: Mapping[str, str]) -> None:
    # no error: a newer embedctl may share the environment, and a container sets more than one program needs
    for name in environ:
        key = name.upper()
        if key.startswith(ENV_PREFIX) and not key.startswith(_TEST_PREFIX):
            setting = key.removeprefix(ENV_PREFIX).lower()
            if setting not in Settings.model_fields:
                logger.warning(
                    "%s is ignored: it %s", name, nearest(setting, Settings.model_fields, ENV_PREFIX)
                )
