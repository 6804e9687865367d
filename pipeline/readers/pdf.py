"""PDF -> text, page by page. Runs in the parser process only: PDFium is not thread-safe."""

from typing import Any

from embedctl.pipeline.readers.parser_process import Parsed
from embedctl.pipeline.readers.problem import Problem

PAGE_SEPARATOR = "\n\n"


def parse_pdf(content: bytes, max_chars: int) -> Parsed:
    """Text of all pages. Raises Problem when it is encrypted, damaged, too long or has no text layer."""
    import pypdfium2

    try:
        pdf = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as exc:
        raise Problem(_refusal(exc)) from exc
    with pdf:
        pages = _read_pages(pdf, max_chars)
        title = pdf.get_metadata_value("Title").strip()
    text = PAGE_SEPARATOR.join(pages)
    if not text.strip():
        raise Problem("It has no text layer (a scan?); run it through text recognition first.")
    return Parsed(text, title, _page_starts(pages))


def _refusal(exc: Exception) -> str:
    if "password" in str(exc).lower() or "security" in str(exc).lower():
        return "It is encrypted; save it without a password."
    return "It is damaged or no PDF."


def _read_pages(pdf: Any, max_chars: int) -> list[str]:
    pages = []
    num_chars = 0
    for number in range(len(pdf)):
        pages.append(_read_page(pdf, number))
        num_chars += len(pages[-1])
        if num_chars > max_chars:
            raise Problem(f"Its text has more than {max_chars:,} characters (max_document_bytes).")
    return pages


def _read_page(pdf: Any, number: int) -> str:
    """Text of one page; a word that was hyphenated at the end of a line is joined again."""
    page = pdf[number]
    try:
        textpage = page.get_textpage()
        try:
            text = textpage.get_text_bounded(errors="replace")
        finally:
            textpage.close()
    finally:
        page.close()
    # PDFium marks such a hyphen by one of these two and leaves the line break out
    return str(text.replace("\x02", "").replace("\ufffe", "").replace("\r\n", "\n").strip())


def _page_starts(pages: list[str]) -> list[int]:
    starts = [0]
    for page in pages[:-1]:
        starts.append(starts[-1] + len(page) + len(PAGE_SEPARATOR))
    return starts
