"""HTML and PDF: their text, and what a hostile file costs."""

import os
import threading
import time

import psutil
import pytest

from embedctl.pipeline.errors import ConfigurationError
from embedctl.pipeline.readers import ReaderOptions
from embedctl.pipeline.readers.parser_process import ParserProcess
from embedctl.pipeline.readers.problem import Problem

#: Minutes of work for the HTML parser, which is quadratic in depth.
NESTED = b"<div>" * 300_000


@pytest.fixture
def parser():
    with ParserProcess(ReaderOptions(parse_timeout_s=60)) as parser:
        yield parser


def test_html_reads_as_a_browser_shows_it(parser):
    page = """<!doctype html><html><head><title> The
      page </title><style>p {}</style><script>alert('no')</script></head><body>
      <h1>Heading</h1><p>One <b>bold</b> word&nbsp;&amp;
      more.</p><ul><li>first</li><li>second</ul>text<br>next<br><br>last
      <table><tr><td>A</td><td>B</td></tr><tr><td>C</td></tr></table><pre>  x
    y</pre><noscript>no</noscript><template>no</template><svg><text>no</text></svg><!-- no -->
      <div><div>end</div></div>
      </body></html>"""

    parsed = parser.parse("html", page.encode())

    assert parsed.title == "The page"
    assert parsed.text == (
        "Heading\n\nOne bold word\xa0& more.\n\nfirst\nsecond\n\ntext\nnext\n\nlast\n\nA B\nC\n\n"
        "  x\n    y\n\nend"
    )


@pytest.mark.parametrize(
    ("page", "text"), [("", ""), ("plain", "plain"), ("<p>a<p>b", "a\n\nb"), ("<b>a</b>b", "ab")]
)
def test_html_may_be_incomplete(parser, page, text):
    assert parser.parse("html", page.encode()).text == text


def test_html_in_an_old_encoding_says_so_itself(tmp_path, read):
    page = '<meta charset="shift_jis"><title>会議</title><p>予約'
    (tmp_path / "a.html").write_bytes(page.encode("shift_jis"))

    document = read(tmp_path)[0]["a.html"]

    assert document.text == "予約"
    assert document.reader == "html/1"
    assert dict(document.metadata) == {
        "name": "a.html",
        "suffix": ".html",
        "encoding": "cp932",
        "title": "会議",
    }


def test_pdf_text_is_joined_by_blank_lines_with_the_pages_starts(tmp_path, read, make_pdf):
    (tmp_path / "a.pdf").write_bytes(
        make_pdf([["Hello exam-", "ple world."], [], ["Page", "three"]], "/Info 4 0 R")
    )

    document = read(tmp_path)[0]["a.pdf"]

    assert document.text == "Hello example world.\n\n\n\nPage\nthree"
    assert document.reader == "pdf/1"
    assert document.metadata["pages"] == [0, 22, 24]
    assert document.text[24:] == "Page\nthree"


ENCRYPTED = (
    "/Encrypt << /Filter /Standard /V 1 /R 2 /P -44 /O (12345678901234567890123456789012) "
    "/U (12345678901234567890123456789012) >> /ID [(a) (a)]"
)


def test_pdfs_without_readable_text_are_reported_and_the_others_are_read(tmp_path, read, make_pdf):
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 nothing else")
    (tmp_path / "empty.pdf").write_bytes(b"")
    (tmp_path / "encrypted.pdf").write_bytes(make_pdf([["x"]], ENCRYPTED))
    (tmp_path / "good.pdf").write_bytes(make_pdf([["fine"]]))
    (tmp_path / "scan.pdf").write_bytes(make_pdf([[], []]))

    documents, reasons = read(tmp_path)

    assert list(documents) == ["good.pdf"]
    assert reasons == {
        "broken.pdf": "It is damaged or no PDF.",
        "empty.pdf": "It is damaged or no PDF.",
        "encrypted.pdf": "It is encrypted; save it without a password.",
        "scan.pdf": "It has no text layer (a scan?); run it through text recognition first.",
    }


def test_a_parser_that_hangs_costs_one_document(tmp_path, read):
    (tmp_path / "a.html").write_text("<p>before")
    (tmp_path / "b.html").write_bytes(NESTED)
    (tmp_path / "c.html").write_text("<p>after")

    documents, reasons = read(tmp_path, parse_timeout_s=1.0)

    assert [document.text for document in documents.values()] == ["before", "after"]
    assert reasons == {"b.html": "Parsing it took longer than 1 s (parse_timeout_s)."}


def test_a_parser_that_is_killed_costs_one_document(parser):
    assert parser.parse("html", b"<p>before").text == "before"
    killer = threading.Thread(target=kill_when_busy, args=(psutil.Process(parser.pid),))
    killer.start()

    with pytest.raises(Problem, match=r"Its parser died \(SIGKILL\)"):
        parser.parse("html", NESTED)

    killer.join()
    assert parser.parse("html", b"<p>after").text == "after"


def kill_when_busy(process: psutil.Process) -> None:
    idle_s = process.cpu_times().user
    while process.cpu_times().user < idle_s + 0.2:
        time.sleep(0.01)
    process.kill()


def test_a_parser_that_died_between_two_documents_costs_none(parser):
    parser.parse("html", b"<p>before")
    process = psutil.Process(parser.pid)
    process.kill()
    while process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)

    assert parser.parse("html", b"<p>after").text == "after"


def test_a_parser_serves_many_documents(parser):
    parser.parse("html", b"<p>first")
    pid = parser.pid

    assert [parser.parse("html", b"<p>%d" % number).text for number in range(50)] == list(map(str, range(50)))
    assert parser.pid == pid


def test_a_document_that_needs_too_much_memory_is_reported():
    options = ReaderOptions(parse_memory_bytes=192 * 1024 * 1024)
    with ParserProcess(options) as parser:
        with pytest.raises(Problem, match=r"Its parser (died|failed)|parse_memory_bytes"):
            parser.parse("html", b"<p>word <b>bold</b></p>" * 1_000_000)

        assert parser.parse("html", b"<p>after").text == "after"


def test_a_limit_below_what_the_parser_itself_needs_is_refused():
    with pytest.raises(ConfigurationError, match="parse_memory_bytes is 1024; it must be at least 134217728"):
        ReaderOptions(parse_memory_bytes=1024)


def test_text_over_the_limit_is_refused():
    with (
        ParserProcess(ReaderOptions(max_document_bytes=10)) as parser,
        pytest.raises(Problem, match="max_document_bytes"),
    ):
        parser.parse("html", b"<p>more than ten characters")


def test_the_parser_ends_with_its_reader():
    with ParserProcess(ReaderOptions()) as parser:
        parser.parse("html", b"<p>x")
        pid = parser.pid

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_parser_gets_no_settings_of_ours(monkeypatch):
    monkeypatch.setenv("EMBEDCTL_DATABASE_URL", "postgresql://user:secret@host/db")
    with ParserProcess(ReaderOptions()) as parser:
        parser.parse("html", b"<p>x")

        with open(f"/proc/{parser.pid}/environ", "rb") as environ:
            assert b"secret" not in environ.read()
