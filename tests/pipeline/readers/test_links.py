"""Links: the walk ends, each real file has one id, nothing outside the root is read."""

from pathlib import Path

from embedctl.pipeline.readers import ReaderOptions, open_source


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("text")


def ids_and_tally(root: Path, **options) -> tuple[list[str], dict[str, int]]:
    source = open_source(root, ReaderOptions(**options))
    return [item.doc_id for item in source.read(lambda: 1)], dict(source.tally.skipped)


def test_links_to_the_root_and_to_ancestors_end(tmp_path):
    write(tmp_path, "a.txt", "b/c/d.txt")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "b/c/up").symlink_to("../..")
    (tmp_path / "b/c/self").symlink_to("../c")

    ids, skipped = ids_and_tally(tmp_path)

    assert ids == ["a.txt", "b/c/d.txt"]
    assert skipped == {"links to what is read under its own name": 3}


def test_a_file_is_read_under_its_own_name_however_many_links_lead_to_it(tmp_path):
    write(tmp_path, "z/real.txt")
    (tmp_path / "a.txt").symlink_to("z/real.txt")
    (tmp_path / "b.txt").symlink_to("a.txt")
    (tmp_path / "c").symlink_to("z")

    assert ids_and_tally(tmp_path)[0] == ["z/real.txt"]


def test_a_link_out_of_the_root_is_left_out_and_counted(tmp_path):
    write(tmp_path, "root/a.txt", "outside/secret.txt", "root-2/b.txt")
    (tmp_path / "root/file.txt").symlink_to("../outside/secret.txt")
    (tmp_path / "root/folder").symlink_to(tmp_path / "outside")
    (tmp_path / "root/sibling").symlink_to(tmp_path / "root-2")

    ids, skipped = ids_and_tally(tmp_path / "root")

    assert ids == ["a.txt"]
    assert skipped == {"links that leave the folder": 3}


def test_what_only_links_reach_is_read_once_under_the_first_name(tmp_path):
    # as Kubernetes mounts a ConfigMap
    write(tmp_path, "..2026/app.md", "..2026/sub/b.md", ".store/object.txt")
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "app.md").symlink_to("..data/app.md")
    (tmp_path / "sub").symlink_to("..data/sub")
    (tmp_path / "one.txt").symlink_to(".store/object.txt")
    (tmp_path / "two.txt").symlink_to(".store/object.txt")

    ids, _ = ids_and_tally(tmp_path)

    assert ids == ["app.md", "one.txt", "sub/b.md"]


def test_loops_below_a_followed_link_end(tmp_path):
    write(tmp_path, ".store/a.txt", ".store/deep/b.txt")
    (tmp_path / ".store/back").symlink_to("../.store")
    (tmp_path / ".store/deep/again").symlink_to("../deep")
    (tmp_path / "one").symlink_to(".store")
    (tmp_path / "two").symlink_to(".store")

    ids, _ = ids_and_tally(tmp_path)

    assert ids == ["one/a.txt", "one/deep/b.txt"]


def test_a_link_to_an_ignored_file_is_a_name_for_it(tmp_path):
    write(tmp_path, "build/out.txt", "logs/a.log")
    (tmp_path / ".gitignore").write_text("build/\n*.log\n")
    (tmp_path / "result.txt").symlink_to("build/out.txt")
    (tmp_path / "b.log").symlink_to("build/out.txt")

    assert ids_and_tally(tmp_path)[0] == ["result.txt"]


def test_broken_links_are_reported_and_ignored_ones_are_not(tmp_path, read):
    (tmp_path / ".gitignore").write_text("*.tmp\n")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("missing/file.txt")
    (tmp_path / "gone.tmp").symlink_to("missing/file.txt")

    documents, reasons = read(tmp_path)

    assert documents == {}
    assert reasons["gone"] == "It is a link to missing/file.txt, which does not exist."
    assert reasons["loop"].startswith("It is a link to loop, which cannot be followed.")
    assert len(reasons) == 2


def test_a_root_that_is_a_link_is_its_target(tmp_path):
    write(tmp_path, "real/a.txt")
    (tmp_path / "link").symlink_to("real")

    assert ids_and_tally(tmp_path / "link")[0] == ["a.txt"]
