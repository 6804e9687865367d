"""A folder's .gitignore files exclude what git would exclude."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from embedctl.pipeline.readers import ReaderOptions, open_source


def build(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "kept"),
    [
        ({".gitignore": "*.log\n", "a.log": "", "a.txt": "", "b/c.log": ""}, ["a.txt"]),
        ({".gitignore": "/a.txt\n", "a.txt": "", "b/a.txt": ""}, ["b/a.txt"]),
        ({".gitignore": "build/\n", "build/a.txt": "", "b/build": "file"}, ["b/build"]),
        ({".gitignore": "*.txt\n!keep.txt\n", "a.txt": "", "b/keep.txt": ""}, ["b/keep.txt"]),
        ({".gitignore": "build/\n!build/keep.txt\n", "build/keep.txt": "", "a.txt": ""}, ["a.txt"]),
        (
            {".gitignore": "build/**\n!build/keep.txt\n", "build/keep.txt": "", "build/a.txt": ""},
            ["build/keep.txt"],
        ),
        (
            {".gitignore": "*\n!*/\n!*.md\n", "a.md": "", "a.txt": "", "b/c.md": "", "b/c.txt": ""},
            ["a.md", "b/c.md"],
        ),
        (
            {".gitignore": "*.log\n", "b/.gitignore": "!keep.log\n", "b/keep.log": "", "keep.log": ""},
            ["b/keep.log"],
        ),
        ({".gitignore": "*.log\n", "b/.gitignore": "!v/\n", "b/v/a.log": "", "b/v/a.txt": ""}, ["b/v/a.txt"]),
        ({"b/.gitignore": "/a.txt\n", "a.txt": "", "b/a.txt": "", "b/c/a.txt": ""}, ["a.txt", "b/c/a.txt"]),
        (
            {".gitignore": "﻿a.txt\r\n# b.txt\r\n\\#c.txt\r\n", "a.txt": "", "b.txt": "", "#c.txt": ""},
            ["b.txt"],
        ),
        ({".gitignore": "!\n/\n[z-a].txt\n", "a.txt": ""}, ["a.txt"]),
    ],
)
def test_git_semantics(tmp_path, read, files, kept):
    build(tmp_path, files)

    documents, reasons = read(tmp_path)

    assert (list(documents), reasons) == (kept, {})


def test_ignore_files_are_passed_over_on_request(tmp_path, read):
    build(tmp_path, {".gitignore": "*.log\n", "a.log": "", "a.txt": ""})

    assert list(read(tmp_path, use_gitignore=False)[0]) == ["a.log", "a.txt"]


def test_a_folder_whose_ignore_file_cannot_be_read_is_not_read(tmp_path, read):
    build(tmp_path, {"a.txt": "", "b/c.txt": ""})
    os.mkfifo(tmp_path / "b/.gitignore")

    documents, reasons = read(tmp_path)

    assert list(documents) == ["a.txt"]
    assert reasons == {
        "b/": "Its .gitignore cannot be read, so what it excludes is unknown. "
        "It is a FIFO, socket or device, not a file."
    }


def test_a_pattern_of_many_stars_does_not_hang_the_walk(tmp_path, read):
    build(tmp_path, {".gitignore": "*a" * 30 + "*b\n# **** * ****\n", "a" * 200: "", "a" * 200 + "b": ""})

    assert list(read(tmp_path)[0]) == ["a" * 200]


def test_patterns_that_take_too_long_are_refused(tmp_path, read):
    build(tmp_path, {"b/.gitignore": "a/**/a/**/a/**/a/**/a/**/b\n", "b/a.txt": "", "c.txt": ""})

    documents, reasons = read(tmp_path)

    assert list(documents) == ["c.txt"]
    assert reasons == {"b/": "Its .gitignore has a pattern with more than 4 double stars."}


_PATTERNS = (
    "* */ !*/ !*.md *.md foo foo/ /foo foo/* !foo/bar.md **/foo foo/** !foo/** docs/*.txt !docs/ a/b /a/* "
    "!/a/foo ** !x.txt b/**/a [ab] ? !foo !/docs docs/**/x.txt a/ /* bar.md **/ !**/ a/** !a/b/ b*r*m* "
    "*a*r*.*d *o*o* !*o*c*s */*b*r* *?o?*c* !b[a-c]*r*"
)
PATTERNS = _PATTERNS.split()
NAMES = ("a", "b", "foo", "bar.md", "x.txt", "docs", "Ü.md")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the reference")
@pytest.mark.parametrize("seed", range(40))
def test_git_itself_agrees(tmp_path, seed):
    rng = random.Random(seed)
    grow(tmp_path, rng, depth=0)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    listed = subprocess.run(
        ["git", "-C", tmp_path, "ls-files", "--others", "--exclude-per-directory=.gitignore", "-z"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout

    documents = [item.doc_id for item in open_source(tmp_path, ReaderOptions()).read(lambda: 1)]

    assert documents == sorted(
        name for name in listed.split("\0") if name and not name.endswith(".gitignore")
    )


def grow(folder: Path, rng: random.Random, depth: int) -> None:
    for name in rng.sample(NAMES, rng.randint(1, 5)):
        if "." not in name and depth < 3 and rng.random() < 0.7:
            (folder / name).mkdir()
            grow(folder / name, rng, depth + 1)
        else:
            (folder / name).write_text("text")
    if depth == 0 or rng.random() < 0.4:
        lines = rng.choices(PATTERNS, k=rng.randint(1, 4))
        (folder / ".gitignore").write_text("\n".join(lines) + "\n")
