"""Records: one JSON object a line."""

import gzip
import json
import os
from pathlib import Path

import pytest

from embedctl.pipeline.errors import SourceError
from embedctl.pipeline.readers import ReaderOptions, open_source

DATA = Path(os.environ.get("EMBEDCTL_TEST_DATA", Path(__file__).parents[4] / "shared" / "data"))


def write(path: Path, *lines: str | dict) -> Path:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n"
    data = text.encode("utf-8", "surrogatepass")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz", "A.NDJSON.GZ"])
def test_ids_texts_titles_and_metadata(tmp_path, read, name):
    path = write(
        tmp_path / name,
        {"_id": "a", "title": "Title", "text": "Text", "year": 2020, "tags": ["x"]},
        {"id": 7, "content": "No title"},
        {"_id": "b", "title": "Only a title", "text": ""},
        {"_id": "c", "id": "other", "text": "Both", "content": "kept"},
        {"_id": "d", "title": "", "text": " as it is\r\n"},
    )
    path = path.rename(tmp_path / name)

    documents, reasons = read(path)

    assert reasons == {}
    assert {doc_id: document.text for doc_id, document in documents.items()} == {
        "a": "Title Text",
        "7": "No title",
        "b": "Only a title",
        "c": "Both",
        "d": " as it is\r\n",
    }
    assert dict(documents["a"].metadata) == {"title": "Title", "year": 2020, "tags": ["x"]}
    assert dict(documents["c"].metadata) == {"id": "other", "content": "kept"}
    assert {document.reader for document in documents.values()} == {"jsonl/1"}


def test_a_bad_line_is_named_and_the_others_are_read(tmp_path, read):
    path = write(
        tmp_path / "a.jsonl",
        {"id": "a", "text": "good"},
        "",
        '{"id": "b", "text": "cut of',
        '{"text": "no id"}',
        '{"id": "no text"}',
        "[1]",
        "nonsense",
        '{"id": true, "text": "x"}',
        "   ",
        {"id": "i" * 1025, "text": "x"},
        {"id": "deep", "text": "x", "m": json.loads("[" * 40 + "]" * 40)},
        {"id": "z", "text": "good"},
    )

    documents, reasons = read(path)

    assert list(documents) == ["a", "z"]
    assert reasons == {
        "b": "Line 3 is no record: it is not valid JSON: unexpected control character in string, column 28.",
        "line 4": "Line 4 is no record: it has no _id or id that is a text or a number.",
        "no text": "Line 5 is no record: it has no text or content that is a text.",
        "line 6": "Line 6 is no record: it holds a list, not a JSON object.",
        "line 7": reasons["line 7"],
        "line 8": "Line 8 is no record: it has no _id or id that is a text or a number.",
        "i" * 1025: "Line 10 is no record: its id has 1,025 characters; at most 1,024 are allowed.",
        "deep": "Line 11 is no record: it is nested deeper than 32 levels.",
    }
    assert reasons["line 7"].startswith("Line 7 is no record: it is not valid JSON: ")


def test_a_bad_line_without_an_id_says_by_its_stage_that_any_document_may_be_meant(tmp_path):
    path = write(tmp_path / "a.jsonl", "nonsense", '{"id": "a", "text": "cut of')

    items = list(open_source(path, ReaderOptions()).read(lambda: 1))

    assert [(item.doc_id, item.stage) for item in items] == [("line 1", "line"), ("a", "read")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_line_over_the_limit_is_reported_without_being_held(tmp_path, read, name):
    path = write(
        tmp_path / name,
        {"id": "a", "text": "x"},
        {"id": "long", "text": "x" * 5_000_000},
        {"id": "b", "text": "y"},
        {"id": "last", "text": "x" * 5_000_000},
    )

    documents, reasons = read(path, max_document_bytes=1000)

    assert list(documents) == ["a", "b"]
    assert reasons["long"] == "Line 2 is no record: it has more than 1,000 bytes (max_document_bytes)."
    assert list(reasons) == ["long", "last"]


def test_a_line_of_exactly_the_limit_is_read(tmp_path, read):
    record = '{"id":"a","text":"x"}'
    path = tmp_path / "a.jsonl"
    path.write_text(record + "\n" + record.replace("a", "b"))

    assert list(read(path, max_document_bytes=len(record) + 1)[0]) == ["a", "b"]
    assert list(read(path, max_document_bytes=len(record))[1]) == ["a"]


def test_nul_surrogates_and_odd_numbers_are_made_safe(tmp_path, read):
    path = write(
        tmp_path / "a.jsonl",
        r'{"id": "a\u0000", "text": "x\u0000y", "m": {"k\u0000": "\u0000"}}',
        r'{"id": "b", "text": "x\ud800y", "t": "\udfff"}',
        '{"id": "c", "text": "x", "n": [NaN, Infinity, 1e999, 18446744073709551615, 123456789012345678901]}',
        '{"id": 123456789012345678, "text": "x"}',
    )

    documents, reasons = read(path)

    assert reasons == {}
    assert (documents["a�"].text, documents["a�"].metadata) == ("x�y", {"m": {"k�": "�"}})
    assert (documents["b"].text, documents["b"].metadata) == ("x�y", {"t": "�"})
    assert documents["c"].metadata == {"n": [None, None, None, 1.8446744073709552e19, 1.2345678901234568e20]}
    assert "123456789012345678" in documents
    assert all(len(document.payload_hash) == 32 for document in documents.values())


def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path, read):
    record = '{"id": "a", "text": "é"}\n{"id": "b", "text": "🙂"}\n'
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        path = tmp_path / f"{encoding}.jsonl"
        path.write_bytes(record.encode(encoding))

        assert [document.text for document in read(path)[0].values()] == ["é", "🙂"]


def test_a_configured_encoding_is_that_of_lines_which_are_not_utf8(tmp_path, read):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        '{"id": "a", "text": "会議室予約"}\n'.encode("shift_jis") + '{"id": "b", "text": "会議"}\n'.encode()
    )

    assert [document.text for document in read(path, encoding="shift_jis")[0].values()] == [
        "会議室予約",
        "会議",
    ]
    documents, reasons = read(path)
    assert list(documents) == ["b"]
    assert reasons["a"].startswith("Line 1 is no record: it is not valid UTF-8: byte 0x89")


def test_utf16_without_a_mark_is_read_when_configured(tmp_path, read):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"id": "a", "text": "会議"}\n{"id": "b", "text": "x"}'.encode("utf-16-le"))

    assert [document.text for document in read(path, encoding="utf-16-le")[0].values()] == ["会議", "x"]


@pytest.mark.parametrize("damage", ["cut", "garbled", "garbage after"])
def test_a_damaged_gzip_file_yields_what_came_before_and_is_not_complete(tmp_path, damage):
    path = write(
        tmp_path / "a.jsonl.gz", *({"id": str(n), "text": os.urandom(500).hex()} for n in range(5000))
    )
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[-len(content) // 4 :]
    elif damage == "garbled":
        content[len(content) * 3 // 4 :] = b"\xff" * (len(content) // 4)
    else:
        content += b"no gzip member"
    path.write_bytes(content)
    observations: list[int] = []
    items = open_source(path, ReaderOptions()).read(lambda: 1)

    with pytest.raises(SourceError, match=r"a\.jsonl\.gz is cut off or damaged after line \d+"):
        observations.extend(item.observation for item in items)

    assert len(observations) > 1000


def test_a_file_that_changes_while_it_is_read_is_not_complete(tmp_path):
    path = write(tmp_path / "a.jsonl", *({"id": str(n), "text": "x"} for n in range(10)))
    items = open_source(path, ReaderOptions()).read(lambda: 1)
    next(items)

    with path.open("a") as file:
        file.write('{"id": "more", "text": "x"}\n')

    with pytest.raises(SourceError, match="changed while it was being read"):
        list(items)


def test_the_observation_is_drawn_once_before_the_file_is_opened(tmp_path):
    path = write(tmp_path / "a.jsonl", {"id": "a", "text": "x"}, {"id": "b", "text": "x"})
    source = open_source(path, ReaderOptions())
    path.unlink()
    draws: list[int] = []

    with pytest.raises(SourceError, match="vanished"):
        list(source.read(lambda: draws.append(1) or 42))

    assert draws == [1]


def test_the_same_id_twice_is_yielded_twice_in_order(tmp_path):
    path = write(tmp_path / "a.jsonl", {"id": "a", "text": "first"}, {"id": "a", "text": "second"})

    items = list(open_source(path, ReaderOptions()).read(lambda: 1))

    assert [(item.doc_id, item.position, item.text) for item in items] == [
        ("a", 0, "first"),
        ("a", 1, "second"),
    ]


def test_scifact_is_read_completely(read):
    path = DATA / "scifact" / "corpus.jsonl.gz"
    if not path.exists():
        assert not os.environ.get("CI"), f"EMBEDCTL_TEST_DATA has no {path}"
        pytest.skip("the test data is not here")

    documents, reasons = read(path)

    assert (len(documents), reasons) == (5183, {})
    assert documents["4983"].text.startswith(
        "Microstructural development of human newborn cerebral white matter"
    )
