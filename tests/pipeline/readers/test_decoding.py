"""Bytes become the text that was meant; where that is not certain, the document says so."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedctl.pipeline.errors import ConfigurationError
from embedctl.pipeline.readers import ReaderOptions, sanitize_json, sanitize_text
from embedctl.pipeline.readers.decoding import decode


@pytest.mark.parametrize("num_ascii", [5000, 4095, 4096, 8191, 65535, 65536, 131071, 262143, 1_000_003])
@pytest.mark.parametrize("tail", ["café", "— em dash", "会議", "🙂"])
def test_utf8_is_seen_whatever_comes_first(num_ascii, tail):
    text = "a" * num_ascii + tail

    decoded = decode(text.encode())

    assert (decoded.text, decoded.encoding, decoded.is_certain) == (text, "utf-8", True)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_decides_and_is_no_text(encoding):
    assert decode("héllo 🙂".encode(encoding)).text == "héllo 🙂"


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
)
def test_both_byte_orders_are_read(mark, encoding):
    decoded = decode(mark + "line\nnext".encode(encoding))

    assert (decoded.text, decoded.encoding) == ("line\nnext", encoding)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("会議室予約", "shift_jis"),
        ("café très à Paris", "iso-8859-1"),
        ("© ® ™ “quoted” – café", "cp1252"),
        ("plain ASCII, in Japanese mail: 会議", "iso2022_jp"),
        ("all ASCII", "utf-16-le"),
        ("Привет", "koi8-r"),
    ],
)
def test_a_configured_encoding_gives_the_exact_text(tmp_path, read, text, encoding):
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    (tmp_path / "b.html").write_bytes(f"<p>{text}</p>".encode(encoding))

    documents, reasons = read(tmp_path, encoding=encoding)

    assert reasons == {}
    assert [document.text for document in documents.values()] == [text, text]
    assert documents["a.txt"].metadata["encoding"] == encoding


def test_a_configured_encoding_does_not_spoil_files_in_utf8(tmp_path, read):
    (tmp_path / "a.txt").write_bytes("naïve 会議".encode())

    assert read(tmp_path, encoding="cp1252")[0]["a.txt"].text == "naïve 会議"


def test_what_the_configured_encoding_cannot_be_is_reported(tmp_path, read):
    (tmp_path / "a.txt").write_bytes(b"ok " + b"\xff\xff")

    _, reasons = read(tmp_path, encoding="shift_jis")

    assert reasons["a.txt"].startswith("It is not valid shift_jis: byte 0xff at offset 3; ")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("会議室予約", "cp932"),
        ("café très à Paris", "cp1252"),
        ("© ® ™ “quoted” – café", "cp1252"),
        ("x é", "cp1252"),
        ("Привет мир, как дела сегодня", "cp1251"),
        ("今天天气很好，我们去公园散步。", "gb18030"),
    ],
)
def test_a_guess_is_recorded(tmp_path, read, text, encoding):
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))

    metadata = read(tmp_path)[0]["a.txt"].metadata

    assert metadata["encoding"] == encoding
    assert read(tmp_path)[0]["a.txt"].text == text


@pytest.mark.parametrize("text", ["会議室予約", "café très à Paris", "x é"])
def test_a_guess_from_a_few_bytes_is_marked_as_one(tmp_path, read, text):
    (tmp_path / "a.txt").write_bytes(text.encode("shift_jis" if "会" in text else "cp1252"))

    assert read(tmp_path)[0]["a.txt"].metadata["encoding_confidence"] == "low"


@pytest.mark.parametrize("encoding", ["cp932", "cp1251", "gb18030", "cp949"])
def test_a_long_text_is_guessed_with_confidence_wherever_it_begins(encoding):
    text = {
        "cp932": "会議室の予約はこちらのページからお願いします。",
        "cp1251": "Съешь же ещё этих мягких французских булок, да выпей чаю. ",
        "gb18030": "请在这个页面上预订会议室，谢谢您的合作。",
        "cp949": "이 페이지에서 회의실을 예약해 주시기 바랍니다. ",
    }[encoding]
    content = b"ASCII first\n" * 20_000 + (text * 2000).encode(encoding)

    decoded = decode(content)

    assert (decoded.encoding, decoded.is_certain) == (encoding, True)
    assert decoded.text.endswith(text)


def test_damaged_utf8_is_not_read_as_something_else(tmp_path, read):
    (tmp_path / "a.txt").write_bytes("déjà vu à Paris".encode()[:-1] + b"\xc3")

    _, reasons = read(tmp_path)

    assert reasons["a.txt"].startswith("It is damaged UTF-8: byte 0xc3 at offset ")


def test_an_encoding_that_is_not_known_is_refused():
    for name in ("klingon", "base64", "undefined"):
        with pytest.raises(ConfigurationError, match=name):
            ReaderOptions(encoding=name)


def test_files_have_one_kind_of_line_break(tmp_path, read):
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\rthree\n\r\nfour")

    assert read(tmp_path)[0]["a.txt"].text == "one\ntwo\nthree\n\nfour"


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=50))
def test_sanitized_text_is_utf8_without_nul_and_as_long(text):
    clean = sanitize_text(text)

    clean.encode("utf-8")
    assert "\x00" not in clean
    assert len(clean) == len(text)
    assert sanitize_text(clean) == clean


def test_sanitizing_keeps_every_other_character():
    assert sanitize_text("a\x00b\ud800c\r\n\x01🙂�") == "a�b�c\r\n\x01🙂�"


def test_metadata_is_safe_for_json_and_every_store():
    value = {"a\x00": ["\ud800", 2**64, -(2**63), True, None, float("nan"), 10**400, {"b": float("inf")}]}

    assert sanitize_json(value) == {
        "a�": ["�", 2.0**64, -(2**63), True, None, None, str(10**400), {"b": None}]
    }
