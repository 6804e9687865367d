"""`embedctl models`: list, add and show versions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from embedctl.pipeline.chunking import Chunking
from embedctl.pipeline.commands.display import stdout_console
from embedctl.pipeline.errors import UsageError
from embedctl.pipeline.labels import checked_version
from embedctl.pipeline.ledger.versions import Version
from embedctl.pipeline.models import DEFAULT_MODEL, is_available
from embedctl.pipeline.session import Session
from embedctl.pipeline.version import PREDEFINED, define_version


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What was asked for on the command line; None where nothing was."""

    label: str
    ref: str
    revision: str | None
    precision: str
    dimensions: int | None
    pooling: str | None
    chunking: str
    chunk_tokens: int | None
    overlap: int | None


@dataclass(frozen=True, slots=True)
class VersionList:
    """The bound versions, and whether v1 would be defined by its first use."""

    versions: Sequence[Version]
    has_predefined: bool

    def to_json(self) -> dict[str, Any]:
        return {"versions": [_describe(version) for version in self.versions]}

    def show(self) -> None:
        from rich.table import Table

        console = stdout_console()
        table = Table(
            "label", "space", "precision", "dimensions", "chunking", "model", box=None, pad_edge=False
        )
        for column in table.columns:  # whatever has to be copied is never cut
            column.no_wrap, column.overflow = True, "ignore"
        for version in self.versions:
            table.add_row(
                version.label,
                version.space_id,
                str(version.space["precision"]),
                str(version.space["dimensions"]),
                _chunking(version),
                version.ref,
            )
        if self.has_predefined:
            table.add_row(PREDEFINED, "at first use", "fp32", "", "tokens", DEFAULT_MODEL)
        console.print(table, crop=False)
        if not table.row_count:
            console.print("No versions yet. Define one with `embedctl models add LABEL MODEL`.")


@dataclass(frozen=True, slots=True)
class VersionCard:
    """All of one version."""

    version: Version

    def to_json(self) -> dict[str, Any]:
        return _describe(self.version) | {
            "definition": dict(self.version.space),
            "provenance": dict(self.version.provenance),
        }

    def show(self) -> None:
        console = stdout_console()
        version = self.version
        console.print(f"{version.label}: space {version.space_id}, {version.ref}", soft_wrap=True)
        console.print(f"  chunking        {_chunking(version)}")
        for name, value in version.space.items():
            shown = f"{value.get('model_type', '')} (config.json)" if name == "architecture" else value
            if isinstance(shown, list):
                shown = ", ".join(map(str, shown))
            if shown != "":
                console.print(f"  {name:<15} {shown}", soft_wrap=True)
        for name, value in version.provenance.items():
            console.print(f"  from: {name:<9} {value}", soft_wrap=True)


def list_models(session: Session) -> VersionList:
    versions = session.ledger.versions.list()
    is_bound = any(version.label == PREDEFINED for version in versions)
    return VersionList(versions, not is_bound and is_available(DEFAULT_MODEL))


def add_model(session: Session, options: ModelOptions) -> VersionCard:
    if options.precision == "int8":
        raise UsageError("Precision int8 is not supported by this release; take fp32, bf16 or fp16.")
    version = define_version(
        session,
        checked_version(options.label),
        options.ref,
        revision=options.revision,
        precision=options.precision,
        dimensions=options.dimensions,
        pooling=options.pooling,
        chunking=Chunking.of(options.chunking, options.chunk_tokens, options.overlap),
    )
    return VersionCard(version)


def show_model(session: Session, label: str) -> VersionCard:
    """A bound version, or v1 as its first use would bind it."""
    found = session.ledger.versions.find(label)
    if found is None and label == PREDEFINED and is_available(DEFAULT_MODEL):
        found = define_version(session, label, DEFAULT_MODEL)
    return VersionCard(found or session.ledger.versions.get(label))


def _chunking(version: Version) -> str:
    chunking = version.chunking
    if chunking["strategy"] == "none":
        return "none"
    return f"{chunking['strategy']}, {chunking['chunk_tokens']} per chunk, overlap {chunking['overlap']}"


def _describe(version: Version) -> dict[str, Any]:
    return {
        "label": version.label,
        "space": version.space_id,
        "ref": version.ref,
        "precision": version.space["precision"],
        "dimensions": version.space["dimensions"],
        "max_tokens": version.space["max_tokens"],
        "chunking": dict(version.chunking),
    }
