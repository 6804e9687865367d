"""The commands as a user types them: output, JSON keys, exit codes, and one clear line for every mistake."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from embedctl.cli import app


@dataclass(frozen=True)
class Output:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Output]


@pytest.fixture
def embedctl(home: Path) -> Command:
    """Runs a command in this process, in an empty home with `v1` bound to the dummy model."""
    runner = CliRunner()

    def run(*arguments: str) -> Output:
        result = runner.invoke(app, list(arguments))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Output(result.exit_code, result.stdout, result.stderr)

    assert run("models", "add", "v1", "dummy:16", "--chunk-tokens", "100").code == 0
    return run


@pytest.fixture
def corpus(home: Path) -> Path:
    folder = home / "corpus"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "apples.txt").write_text("Apples grow on trees.")
    (folder / "deep" / "bread.md").write_text("# Bread\n\nBread is baked from flour.")
    (folder / "deep" / "er" / "cheese.html").write_text("<h1>Cheese</h1><p>Cheese is made of milk.</p>")
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "noise.log").write_text("ignored")
    (folder / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    return folder


def test_index_search_status_and_failures_of_a_folder(embedctl, corpus):
    indexed = embedctl("index", "corpus", "--json")
    assert indexed.code == 0
    [run] = indexed.json["runs"]
    assert set(run) == {
        "run_id", "index", "model", "source", "state", "documents", "chunks", "tokens", "seconds",
    }  # fmt: skip
    assert run["documents"]["embedded"] == 3

    found = embedctl("search", "anything", "-k", "2", "--json").json
    assert set(found) == {"version", "space", "collection", "hits"}
    assert len(found["hits"]) == 2
    assert set(found["hits"][0]) == {"score", "doc_id", "source", "start", "end", "text"}
    assert "corpus/" in embedctl("search", "anything").out

    status = embedctl("status", "--json").json
    assert (status["indexes"][0]["documents"], status["indexes"][0]["state"]) == (3, "live")
    assert "corpus" in embedctl("status").out
    assert embedctl("failed", "ls", "--json").json == {"failures": []}


def test_the_summary_says_what_was_done_and_what_was_skipped(embedctl, corpus):
    said = embedctl("index", "corpus").err

    assert "3 embedded" in said
    assert "1 file skipped: 1 not text" in said


def test_touching_every_file_embeds_nothing(embedctl, corpus):
    embedctl("index", "corpus")
    for path in corpus.rglob("*"):
        os.utime(path, (1, 1))

    [run] = embedctl("index", "corpus", "--json").json["runs"]

    assert run["documents"]["unchanged"] == run["documents"]["seen"] == 3
    assert run["chunks"] == {"embedded": 0, "reused": 0, "deleted": 0, "truncated": 0}


def test_a_removed_renamed_and_edited_file_are_right_after_the_next_run(embedctl, corpus):
    embedctl("index", "corpus")
    (corpus / "apples.txt").unlink()
    (corpus / "deep" / "bread.md").rename(corpus / "bread.md")
    (corpus / "deep" / "er" / "cheese.html").write_text("<p>Cheese is old milk.</p>")

    [run] = embedctl("index", "corpus", "--json", "--max-prune", "1").json["runs"]

    assert (run["documents"]["pruned"], run["documents"]["embedded"]) == (2, 2)
    hits = embedctl("search", "x", "--json").json["hits"]
    assert {(hit["doc_id"], hit["text"]) for hit in hits} == {
        ("bread.md", "# Bread\n\nBread is baked from flour."),
        ("deep/er/cheese.html", "Cheese is old milk."),
    }


def test_a_refused_prune_exits_with_4_and_says_how_to_allow_it(embedctl, corpus):
    embedctl("index", "corpus")
    (corpus / "apples.txt").unlink()

    refused = embedctl("index", "corpus")

    assert refused.code == 4
    assert "--max-prune 1" in refused.err
    assert len(embedctl("search", "x", "--json").json["hits"]) == 3


def test_bad_files_are_listed_and_the_good_ones_indexed(embedctl, corpus):
    os.mkfifo(corpus / "pipe.txt")
    (corpus / "dangling.txt").symlink_to("nowhere")
    (corpus / "broken.pdf").write_bytes(b"%PDF-1.7 this is no pdf")

    done = embedctl("index", "corpus")

    assert done.code == 3
    assert "embedctl failed ls" in done.err
    failures = embedctl("failed", "ls", "--json").json["failures"]
    assert {failure["doc_id"] for failure in failures} == {"pipe.txt", "dangling.txt", "broken.pdf"}
    assert all(failure["reason"] and "\n" not in failure["reason"] for failure in failures)
    assert "broken.pdf" in embedctl("failed", "ls").out
    assert len(embedctl("search", "x", "--json").json["hits"]) == 3


def test_records_have_their_title_before_their_text_and_other_fields_as_metadata(embedctl, home):
    lines = [
        {"_id": "1", "title": "Apples", "text": "grow on trees.", "year": 1999},
        {"id": 2, "content": "Only a content."},
    ]
    (home / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    embedctl("index", "records.jsonl")

    hits = {hit["doc_id"]: hit["text"] for hit in embedctl("search", "x", "--json").json["hits"]}
    assert hits == {"1": "Apples grow on trees.", "2": "Only a content."}


def test_several_sources_share_an_index_and_keep_apart(embedctl, corpus, home):
    (home / "notes").mkdir()
    (home / "notes" / "a.txt").write_text("A note.")

    assert embedctl("index", "corpus", "notes").code == 0
    (home / "notes" / "a.txt").unlink()
    assert embedctl("index", "notes", "--max-prune", "1").code == 0

    assert {hit["source"] for hit in embedctl("search", "x", "--json").json["hits"]} == {"corpus"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["index", "nowhere"], 1, "nowhere"),
        (["index", "corpus", "--model", "v9"], 1, "embedctl models add v9"),
        (["index", "corpus", "--index", "a__b"], 2, "cannot be the name of an index"),
        (["index", "corpus", "corpus/deep", "--source", "x"], 2, "one by one"),
        (["search", "x"], 1, "embedctl index PATH"),
        (["search", "  "], 2, "empty"),
        (["search", "x", "--model", "v9"], 1, "v9"),
        (["status", "77"], 2, "no run 77"),
        (["status", "--watch", "--json"], 2, "--watch"),
        (["models", "show", "v9"], 1, "models add v9"),
        (["models", "add", "v2", "/no/such/model"], 1, "/no/such/model"),
        (["models", "add", "v2", "some/hub-model"], 2, "--revision"),
        (["models", "add", "v/2", "dummy:16"], 2, "label of a version"),
        (["models", "add", "v2", "dummy:16", "--chunking", "words"], 2, "words"),
        (["models", "add", "v2", "dummy:16", "--chunk-tokens", "100000"], 2, "does not fit"),
        (["models", "add", "v2", "dummy:16", "--precision", "fp8"], 2, "fp8"),
        (["models", "add", "v2", "dummy:16", "--dimensions", "17"], 2, "17"),
        (["models", "add", "v1", "dummy:8"], 1, "can never come to mean another"),
    ],
)
def test_a_mistake_is_one_clear_line_with_the_way_out(embedctl, corpus, arguments, code, says):
    result = embedctl(*arguments)

    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert says in result.err
    assert "Traceback" not in result.err


def test_a_moved_source_is_refused_until_it_is_said_that_it_moved(embedctl, corpus, home):
    embedctl("index", "corpus")
    (home / "elsewhere").mkdir()
    corpus.rename(home / "elsewhere" / "corpus")

    refused = embedctl("index", "elsewhere/corpus")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "--rebind" in refused.err

    [run] = embedctl("index", "elsewhere/corpus", "--rebind", "--json").json["runs"]
    assert run["documents"]["unchanged"] == 3


def test_a_bad_setting_names_itself_its_value_and_what_is_allowed(embedctl, monkeypatch):
    monkeypatch.setenv("EMBEDCTL_BATCH_TOKENS", "abc")

    result = embedctl("status")

    assert result.code == 2
    assert "EMBEDCTL_BATCH_TOKENS='abc' is not an integer; allowed: a whole number" in result.err


def test_a_version_beside_the_live_one_is_searched_by_its_label(embedctl, corpus):
    embedctl("index", "corpus")
    embedctl("models", "add", "v2", "dummy:32")
    embedctl("index", "corpus", "--model", "v2")

    assert embedctl("search", "x", "--json").json["version"] == "v1"
    assert embedctl("search", "x", "--model", "v2", "--json").json["collection"] == "docs__v2"
    both = embedctl("index", "corpus", "--json").json["runs"]
    assert [run["model"] for run in both] == ["v1", "v2"]


def test_help_is_there_within_moments_and_loads_nothing_heavy():
    script = (
        "import sys\nfrom typer.testing import CliRunner\nfrom embedctl.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "heavy = ('torch', 'transformers', 'sqlalchemy', 'pyarrow', 'numpy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_an_unchanged_source_imports_neither_torch_nor_arrow(embedctl, corpus):
    embedctl("index", "corpus")
    script = (
        "import sys\nfrom typer.testing import CliRunner\nfrom embedctl.cli import app\n"
        "result = CliRunner().invoke(app, ['index', 'corpus'])\n"
        "assert result.exit_code == 0, result.stderr\n"
        "print([name for name in ('torch', 'transformers', 'pyarrow', 'qdrant_edge') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_text_that_looks_like_markup_is_printed_as_it_is(embedctl, home):
    (home / "odd").mkdir()
    (home / "odd" / "[red].txt").write_text("[bold]not bold[/bold] :smile: \\[x]")
    embedctl("index", "odd")

    assert "[bold]not bold[/bold] :smile: \\[x]" in embedctl("search", "bold").out


def test_a_query_that_is_not_text_is_searched_as_well_as_it_can_be(embedctl, corpus):
    embedctl("index", "corpus")

    assert embedctl("search", "nul\udcff bad\x00").code == 0


def test_a_path_that_is_not_text_is_one_clear_line(embedctl, home):
    (home / "odd\udcff").mkdir()

    result = embedctl("index", "odd\udcff")

    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "not UTF-8" in result.err


def test_failures_of_an_index_that_does_not_exist_are_no_success(embedctl):
    assert embedctl("failed", "ls", "--index", "nope").code == 1


def test_a_name_that_would_steer_the_terminal_is_printed_harmlessly(embedctl, home):
    (home / "odd").mkdir()
    (home / "odd" / "new\nline \x1b[31m.txt").write_text("some \x1b[31m text")
    embedctl("index", "odd")

    out = embedctl("search", "some").out

    assert "\x1b" not in out
    assert "odd/new\\nline \\x1b[31m.txt" in out


def test_output_to_a_full_device_is_one_clear_line(embedctl, corpus):
    embedctl("index", "corpus")
    with open("/dev/full", "w") as full:
        command = [str(Path(sys.executable).with_name("embedctl")), "status", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr
