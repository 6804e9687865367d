"""What is read of a folder, under which id, and what never stops or hangs a run."""

import os
import socket
import threading
from pathlib import Path

import pytest

from embedctl.pipeline.document import Document, Unreadable
from embedctl.pipeline.errors import ConfigurationError, SourceError
from embedctl.pipeline.readers import ReaderOptions, open_source, regular_file


def write(root: Path, *names: str, text: str = "some text") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_documents_come_in_the_order_of_their_ids_with_ascending_positions(tmp_path, read):
    write(tmp_path, "b.txt", "a/z.txt", "a.txt", "a-b.txt", "a/b/c.txt")

    documents, _ = read(tmp_path)

    assert list(documents) == sorted(["b.txt", "a/z.txt", "a.txt", "a-b.txt", "a/b/c.txt"])


def test_a_document_carries_what_a_touch_does_not_change(tmp_path, read):
    write(tmp_path, "notes/guide.md", text="# The guide #\n\nText.")
    before, _ = read(tmp_path)

    os.utime(tmp_path / "notes/guide.md", (1, 1))
    after, _ = read(tmp_path)

    assert before["notes/guide.md"] == after["notes/guide.md"]
    assert before["notes/guide.md"].payload_hash == after["notes/guide.md"].payload_hash
    assert dict(after["notes/guide.md"].metadata) == {
        "name": "guide.md",
        "suffix": ".md",
        "title": "The guide",
    }
    assert after["notes/guide.md"].reader == "text/1"


def test_the_observation_is_drawn_before_each_file_is_opened(tmp_path, monkeypatch):
    write(tmp_path, "a.txt", "b.txt")
    events: list[str] = []
    real_open = os.open

    def spy(path, flags, *args, **kwargs):
        if str(path).endswith(".txt"):
            events.append(Path(path).name)
        return real_open(path, flags, *args, **kwargs)

    def draw() -> int:
        events.append("draw")
        return len(events)

    monkeypatch.setattr(os, "open", spy)
    items = list(open_source(tmp_path, ReaderOptions()).read(draw))

    assert events == ["draw", "a.txt", "draw", "b.txt"]
    assert [item.observation for item in items] == [1, 3]


def test_hidden_files_and_folders_are_not_read(tmp_path, read):
    write(tmp_path, ".env", ".git/config", ".embedctl/ledger.txt", "a/.hidden/b.txt", "a/b.txt", ".gitignore")

    documents, reasons = read(tmp_path)

    assert (list(documents), reasons) == (["a/b.txt"], {})


def test_include_and_exclude_patterns_are_relative_to_the_root(tmp_path, read):
    write(tmp_path, "a.md", "a.txt", "docs/b.md", "docs/old/c.md", "src/d.md")

    documents, _ = read(tmp_path, include=("*.md",), exclude=("docs/old/", "/src"))

    assert list(documents) == ["a.md", "docs/b.md"]


def test_a_pattern_that_is_not_valid_is_said_when_the_source_is_opened(tmp_path):
    with pytest.raises(ConfigurationError, match="include"):
        open_source(tmp_path, ReaderOptions(include=("!",)))


def test_an_empty_document_is_a_document(tmp_path, read):
    for name, content in {
        "0.txt": b"",
        "1.txt": b" \n\t",
        "2.txt": b"\xef\xbb\xbf",
        "3.txt": "​".encode(),
    }.items():
        (tmp_path / name).write_bytes(content)

    documents, reasons = read(tmp_path)

    assert [document.is_empty for document in documents.values()] == [True] * 4
    assert reasons == {}


def test_one_bad_file_costs_only_itself(tmp_path, monkeypatch):
    good = [f"good-{number:03d}.txt" for number in range(95)]
    write(tmp_path, *good, "denied.txt", "gone.txt")
    (tmp_path / "damaged.txt").write_bytes("naïve café ".encode() + b"\xff")
    os.mkfifo(tmp_path / "fifo.txt")
    (tmp_path / "dangling.txt").symlink_to("nowhere.txt")
    deny(monkeypatch, "denied.txt")

    def draw() -> int:
        (tmp_path / "gone.txt").unlink(missing_ok=True)
        return 1

    items = list(open_source(tmp_path, ReaderOptions()).read(draw))

    assert [item.doc_id for item in items if isinstance(item, Document)] == good
    reasons = {item.doc_id: item.reason for item in items if isinstance(item, Unreadable)}
    assert reasons == {
        "damaged.txt": "It is damaged UTF-8: byte 0xff at offset 13 fits no character; "
        "repair it or set its encoding.",
        "dangling.txt": "It is a link to nowhere.txt, which does not exist.",
        "denied.txt": "Permission denied.",
        "fifo.txt": "It is a FIFO, socket or device, not a file.",
        "gone.txt": "It vanished between listing and reading.",
    }


def deny(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Root may read everything, so refusing is simulated at the system call."""
    real_open = os.open

    def refuse(path, flags, *args, **kwargs):
        if os.path.basename(str(path)) == name:
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_reported(tmp_path, read):
    write(tmp_path, "a.txt", "b.txt")
    (tmp_path / "a.txt").chmod(0)

    documents, reasons = read(tmp_path)

    assert (list(documents), reasons) == (["b.txt"], {"a.txt": "Permission denied."})


def test_a_folder_that_cannot_be_listed_is_one_entry_with_a_slash(tmp_path, read, monkeypatch):
    write(tmp_path, "a.txt", "secret/b.txt", "z.txt")
    deny(monkeypatch, "secret")

    documents, reasons = read(tmp_path)

    assert (list(documents), reasons) == (["a.txt", "z.txt"], {"secret/": "Permission denied."})


def test_a_root_that_cannot_be_listed_is_an_error_of_the_source(tmp_path, monkeypatch):
    source = open_source(tmp_path, ReaderOptions())
    deny(monkeypatch, tmp_path.name)

    with pytest.raises(SourceError, match="Permission denied"):
        list(source.read(lambda: 1))


def test_a_file_that_became_a_fifo_or_a_link_after_the_listing_does_not_block(tmp_path):
    write(tmp_path, "a.txt", "b.txt", "c.txt")

    def draw() -> int:
        for name in ("b.txt", "c.txt"):
            (tmp_path / name).unlink()
        os.mkfifo(tmp_path / "b.txt")
        (tmp_path / "c.txt").symlink_to("/etc/hostname")
        return 1

    items = list(open_source(tmp_path, ReaderOptions()).read(draw))

    assert items[0].doc_id == "a.txt"
    assert [(item.doc_id, item.reason.split(",")[0]) for item in items[1:]] == [
        ("b.txt", "It is a FIFO"),
        ("c.txt", "It became a symbolic link"),
    ]


def test_sockets_are_reported(tmp_path, read):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.txt"))
        _, reasons = read(tmp_path)

    assert reasons == {"socket.txt": "It is a FIFO, socket or device, not a file."}


def test_a_file_over_the_limit_is_reported_with_size_limit_and_setting(tmp_path, read):
    write(tmp_path, "small.txt", text="x" * 100)
    write(tmp_path, "large.txt", text="x" * 101)

    documents, reasons = read(tmp_path, max_document_bytes=100)

    assert list(documents) == ["small.txt"]
    assert reasons == {"large.txt": "It has 101 bytes; max_document_bytes is 100."}


def test_files_that_are_not_text_are_skipped_and_counted(tmp_path):
    write(tmp_path, "a.txt", "photo.png", "archive.tar.gz", "Makefile")
    (tmp_path / "data.xyz").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "program").write_bytes(b"\x7fELF\x02\x01\x01" + b"\x00" * 100)
    (tmp_path / "really-a-zip.txt").write_bytes(b"PK\x03\x04" + bytes(200))
    source = open_source(tmp_path, ReaderOptions())

    items = list(source.read(lambda: 1))

    assert [item.doc_id for item in items] == ["Makefile", "a.txt"]
    assert source.tally.sentences() == ["5 files skipped: 5 not text."]


def test_a_large_binary_file_of_unknown_kind_is_skipped_not_reported(tmp_path, read):
    (tmp_path / "model.xyz").write_bytes(bytes(range(256)) * 100)

    assert read(tmp_path, max_document_bytes=100) == ({}, {})


def test_text_with_a_few_nul_bytes_is_text(tmp_path, read):
    content = bytearray(b"word " * 1120)
    content[1517] = 0
    (tmp_path / "a.md").write_bytes(content)
    (tmp_path / "b").write_bytes(content)

    documents, _ = read(tmp_path)

    assert documents["a.md"].text == documents["b"].text
    assert documents["a.md"].text[1517] == "�"
    assert len(documents["a.md"].text) == len(content)


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path, monkeypatch, read):
    write(tmp_path, "a.txt", text="old " * 10)
    changes = iter([True])
    change_during_reads(monkeypatch, tmp_path / "a.txt", changes)

    documents, reasons = read(tmp_path)

    assert (documents["a.txt"].text, reasons) == ("new", {})


def test_a_file_that_never_stands_still_is_reported(tmp_path, monkeypatch, read):
    write(tmp_path, "a.txt", text="old " * 10)
    change_during_reads(monkeypatch, tmp_path / "a.txt", iter([True] * 10))

    _, reasons = read(tmp_path)

    assert reasons["a.txt"].startswith("It changed while it was being read, twice")


def change_during_reads(monkeypatch, path, changes) -> None:
    real = regular_file._read_all

    def read_all(fd, size, max_bytes):
        content = real(fd, size, max_bytes)
        if next(changes, False):
            path.write_text("new" if path.read_text() != "new" else "newer")
        return content

    monkeypatch.setattr(regular_file, "_read_all", read_all)


def test_names_that_are_not_utf8_have_ids_of_their_own(tmp_path, read):
    for name in (b"caf\xe9.txt", b"caf\xe8.txt"):
        with open(os.path.join(os.fsencode(tmp_path), name), "w") as file:
            file.write("text")

    documents, reasons = read(tmp_path)

    assert (list(documents), reasons) == (["caf\\xe8.txt", "caf\\xe9.txt"], {})


def test_two_hundred_levels_are_read(tmp_path, read):
    deep = "/".join(["level"] * 200)
    write(tmp_path, f"{deep}/a.txt")

    documents, reasons = read(tmp_path)

    assert (list(documents), reasons) == ([f"{deep}/a.txt"], {})


def test_a_path_longer_than_the_system_allows_is_reported_as_a_folder(tmp_path, read):
    start = os.open(tmp_path, os.O_RDONLY)
    fd = start
    try:
        for _ in range(25):
            os.mkdir("d" * 200, dir_fd=fd)
            below = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
    finally:
        os.close(fd)

    documents, reasons = read(tmp_path)

    assert documents == {}
    assert list(reasons.values()) == ["Its path is longer than the system allows."]
    assert next(iter(reasons)).endswith("d/")


def test_a_folder_of_many_files_is_streamed(tmp_path):
    write(tmp_path, *(f"{number % 10}/{number}.txt" for number in range(2000)))
    items = open_source(tmp_path, ReaderOptions()).read(lambda: 1)

    next(items)
    write(tmp_path, "9/last.txt")

    assert [item.doc_id for item in items][-1] == "9/last.txt"


def test_a_source_may_be_left_in_the_middle(tmp_path, make_pdf):
    (tmp_path / "a.pdf").write_bytes(make_pdf([["Hello"]]))
    write(tmp_path, "b.txt")
    before = threading.active_count()
    items = open_source(tmp_path, ReaderOptions()).read(lambda: 1)

    next(items)
    items.close()

    assert threading.active_count() == before


def test_a_single_file_is_a_source_of_one_document(tmp_path, read):
    write(tmp_path, "a.txt", "b.txt", ".hidden.txt")

    assert list(read(tmp_path / "a.txt")[0]) == ["a.txt"]
    assert list(read(tmp_path / ".hidden.txt")[0]) == [".hidden.txt"]


def test_a_single_file_that_is_not_text_is_reported(tmp_path, read):
    write(tmp_path, "photo.png")

    assert read(tmp_path / "photo.png") == ({}, {"photo.png": "It is not text."})


def test_a_path_that_is_no_source_is_one_clear_sentence(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(SourceError, match=r"There is no file or folder .*missing; check the path"):
        open_source(tmp_path / "missing", ReaderOptions())
    with pytest.raises(SourceError, match="is a FIFO, socket or device"):
        open_source(tmp_path / "fifo", ReaderOptions())
    with pytest.raises(SourceError, match="loop"):
        open_source(tmp_path / "loop", ReaderOptions())
