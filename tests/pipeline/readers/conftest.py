"""Helpers of the readers' tests."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from embedctl.pipeline.document import Document, Unreadable
from embedctl.pipeline.readers import ReaderOptions, open_source

Read = Callable[..., tuple[dict[str, Document], dict[str, str]]]


@pytest.fixture
def read() -> Read:
    """Read a whole source. Returns documents by id and reasons by id."""

    def read(path: Path, **options: object) -> tuple[dict[str, Document], dict[str, str]]:
        items = list(open_source(path, ReaderOptions(**options)).read(lambda: 1))  # type: ignore[arg-type]
        assert [item.position for item in items] == list(range(len(items)))
        documents = {item.doc_id: item for item in items if isinstance(item, Document)}
        reasons = {item.doc_id: item.reason for item in items if isinstance(item, Unreadable)}
        assert len(documents) + len(reasons) == len(items)
        return documents, reasons

    return read


@pytest.fixture
def make_pdf() -> Callable[..., bytes]:
    return build_pdf


def build_pdf(pages: Sequence[Sequence[str]], trailer: str = "") -> bytes:
    """The smallest PDF with one content stream per page. pages: lines of text, Latin-1."""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for lines in pages:
        shown = "".join(f"({line}) Tj T* " for line in lines)
        body = f"BT /F1 12 Tf 72 720 Td 14 TL {shown}ET"
        objects.append(f"<< /Length {len(body)} >>\nstream\n{body}\nendstream")
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {len(objects)} 0 R >>"
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    return _assemble(objects, trailer)


def _assemble(objects: Sequence[str], trailer: str) -> bytes:
    out = "%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\nstartxref\n{start}\n%%EOF\n"
    return out.encode("latin-1")
