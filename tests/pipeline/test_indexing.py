"""The life of a run, with the real ledger and store: what changes, what stays, what is counted."""

import itertools
import threading
import time
from collections import Counter

import pytest
from rehearsal import Record, Rehearsal, add_up, paragraphs

from embedctl.pipeline.document import Unreadable
from embedctl.pipeline.errors import RunBusy
from embedctl.pipeline.indexing import Stopped


def test_a_first_run_stores_every_chunk_with_its_text_and_goes_live(rehearsal):
    records = [Record("a.txt", paragraphs(3, "a")), Record("b.txt", paragraphs(2, "b"), {"tag": "x"})]

    done = rehearsal.index(records)

    points = rehearsal.points()
    assert len(points) == done.chunks["embedded"] == 5
    for point in points:
        text = {record.doc_id: record.text for record in records}[point.payload["doc_id"]]
        assert text[point.payload["start"] : point.payload["end"]] == point.payload["text"]
        assert (point.payload["version"], point.payload["generation"]) == ("v1", 1)
    assert {point.payload["metadata"].get("tag") for point in points} == {None, "x"}
    assert done.report.run.state == "done"
    assert add_up(done.documents)
    with rehearsal.session() as session:
        assert session.ledger.collections.live("docs").version == "v1"


def test_an_unchanged_source_reaches_neither_chunker_nor_engine(rehearsal):
    records = [Record(f"{number}.txt", paragraphs(2, str(number))) for number in range(20)]
    rehearsal.index(records)
    before = rehearsal.points()

    again = rehearsal.index(records)

    assert again.num_engine_calls == 0
    assert again.documents == {**dict.fromkeys(again.documents, 0), "seen": 20, "unchanged": 20}
    assert set(again.chunks.values()) == {0}
    assert rehearsal.points() == before


def test_an_edited_paragraph_sends_only_its_chunks_to_the_engine(rehearsal):
    text = paragraphs(40)
    rehearsal.index([Record("long.txt", text)])
    edited = text.replace("020 paragraph", "020 edited")

    done = rehearsal.index([Record("long.txt", edited)])

    assert done.engine.counters.num_sequences <= 2
    assert done.chunks["reused"] >= 38
    assert "".join(rehearsal.texts("long.txt")).replace("\n", "") == edited.replace("\n", "")
    assert {point.payload["generation"] for point in rehearsal.points()} == {2}


def test_new_metadata_alone_reaches_the_payload_without_the_engine(rehearsal):
    rehearsal.index([Record("a.txt", paragraphs(3), {"tag": "old"})])

    done = rehearsal.index([Record("a.txt", paragraphs(3), {"tag": "new"})])

    assert done.num_engine_calls == 0
    assert (done.documents["payload_only"], done.chunks["reused"]) == (1, 3)
    assert [point.payload["metadata"]["tag"] for point in rehearsal.points()] == ["new"] * 3


def test_a_document_that_shrinks_leaves_none_of_its_old_chunks_behind(rehearsal):
    rehearsal.index([Record("a.txt", paragraphs(10))])

    rehearsal.index([Record("a.txt", paragraphs(3))])

    assert rehearsal.texts("a.txt") == [f"{i:03d} paragraph of a text." for i in range(3)]


@pytest.mark.parametrize("text", ["", "   ", "\n\t\n", "\ufeff", "\u200b\u200b"])
def test_a_document_without_text_is_empty_and_loses_its_old_points(rehearsal, text):
    first = rehearsal.index([Record("a.txt", text), Record("b.txt", paragraphs(1))])
    assert (first.documents["empty"], first.documents["failed"]) == (1, 0)

    emptied = rehearsal.index([Record("a.txt", text), Record("b.txt", text)])

    assert emptied.documents["empty"] == 1
    assert emptied.report.exit_code == 0
    assert rehearsal.points() == []


def test_a_removed_document_goes_and_a_renamed_one_is_copied(rehearsal):
    rehearsal.index([Record("old.txt", paragraphs(3, "x")), Record("gone.txt", paragraphs(3, "y"))])

    done = rehearsal.index([Record("new.txt", paragraphs(3, "x"))])

    assert done.documents["pruned"] == 2
    assert done.num_engine_calls == 0
    assert Counter(point.payload["doc_id"] for point in rehearsal.points()) == {"new.txt": 3}


def test_a_removed_document_that_comes_back_is_searchable_again(rehearsal):
    both = [Record("a.txt", paragraphs(2, "a")), Record("b.txt", paragraphs(2, "b"))]
    rehearsal.index(both)
    rehearsal.index(both[:1])

    rehearsal.index(both)

    assert {(point.payload["doc_id"], point.payload["generation"]) for point in rehearsal.points()} == {
        ("a.txt", 1),
        ("b.txt", 3),
    }


def test_too_many_vanished_documents_stay_until_it_is_allowed(rehearsal):
    records = [Record(f"{number}.txt", paragraphs(1, str(number))) for number in range(10)]
    rehearsal.index(records)

    refused = rehearsal.index(records[:5], max_prune=0.2)
    assert (refused.report.exit_code, refused.report.run.not_pruned) == (4, 5)
    assert len(rehearsal.points()) == 10

    nothing = rehearsal.index([], max_prune=0.2)
    assert (nothing.report.exit_code, len(rehearsal.points())) == (4, 10)

    allowed = rehearsal.index(records[:5], max_prune=1.0)
    assert (allowed.report.exit_code, allowed.documents["pruned"], len(rehearsal.points())) == (0, 5, 5)


def test_the_pruning_of_one_source_never_reaches_another(rehearsal):
    rehearsal.index([Record("a.txt", paragraphs(2, "a"))], label="one")
    rehearsal.index([Record("a.txt", paragraphs(3, "b"))], label="two")

    rehearsal.index([], label="one", max_prune=1.0)

    assert len(rehearsal.points("one")) == 0
    assert len(rehearsal.points("two")) == 3


def test_a_repeated_id_is_decided_by_the_lower_position_and_reported(rehearsal):
    records = [Record("7", "the first text"), Record("8", "another"), Record("7", "the second text")]

    first = rehearsal.index(records)
    again = rehearsal.index(records)

    assert (first.documents["duplicate"], again.documents["duplicate"]) == (1, 1)
    assert add_up(first.documents)
    assert again.num_engine_calls == 0
    assert rehearsal.texts("7") == ["the first text"]


def test_equal_paragraphs_are_points_of_their_own_and_share_computations(rehearsal):
    text = "the very same paragraph here\n\n" * 11

    done = rehearsal.index([Record("a.txt", text)])

    assert rehearsal.texts("a.txt") == ["the very same paragraph here"] * 11
    assert len({point.point_id for point in rehearsal.points()}) == 11
    assert done.chunks["embedded"] == done.engine.counters.num_sequences < 11
    assert done.chunks["embedded"] + done.chunks["reused"] == 11


def test_equal_inputs_in_different_batches_and_without_a_cache_are_computed_once(home):
    rehearsal = Rehearsal(home, cache_bytes="0", batch_tokens="256")
    records = [Record(f"{number}.txt", "the very same paragraph here") for number in range(100)]

    done = rehearsal.index(records)

    assert done.engine.counters.num_sequences == 1
    assert len(rehearsal.points()) == 100


def test_what_was_embedded_before_comes_from_the_cache_also_for_another_source(rehearsal):
    rehearsal.index([Record("a.txt", paragraphs(5))], label="one")

    done = rehearsal.index([Record("b.txt", paragraphs(5))], label="two")

    assert (done.num_engine_calls, done.chunks["reused"]) == (0, 5)


def test_a_document_of_many_batches_is_served_once_and_not_embedded_again(home):
    rehearsal = Rehearsal(home, batch_tokens="256", workers="3")
    records = [Record("big.txt", paragraphs(250))]
    rehearsal.index(records)

    again = rehearsal.index(records)

    assert (again.num_engine_calls, again.chunks["deleted"], len(rehearsal.points())) == (0, 0, 250)


def test_an_unreadable_document_is_listed_and_keeps_what_was_indexed_of_it(rehearsal):
    rehearsal.index([Record("a.txt", paragraphs(2, "a")), Record("b.txt", paragraphs(2, "b"))])

    done = rehearsal.index(
        [Record("a.txt", paragraphs(2, "a")), Unreadable("b.txt", 1, "Permission denied.")]
    )

    assert (done.report.exit_code, done.documents["failed"], done.documents["pruned"]) == (3, 1, 0)
    assert add_up(done.documents)
    assert len(rehearsal.points()) == 4
    with rehearsal.session() as session:
        [failure] = session.ledger.failures.list()
    assert (failure.doc_id, failure.reason) == ("b.txt", "Permission denied.")


def test_a_document_that_changes_while_it_is_being_embedded_ends_as_the_newest(rehearsal):
    """The first run is stopped with batches left; the plan of the second overtakes them."""
    stop = threading.Event()
    with pytest.raises(Stopped):
        rehearsal.index(
            [Record("a.txt", paragraphs(30, "old"))], delay_s=0.3, stop=stop, on_read=lambda item: stop.set()
        )

    done = rehearsal.index([Record("a.txt", paragraphs(4, "new"))])

    assert rehearsal.texts("a.txt") == [f"new{i:03d} paragraph of a text." for i in range(4)]
    assert add_up(done.documents)


def test_a_stopped_run_goes_on_where_it_stopped_and_counts_as_one(rehearsal):
    records = [Record(f"{number}.txt", paragraphs(4, str(number))) for number in range(30)]
    stop, num_read = threading.Event(), itertools.count()

    def stop_half_way(item):
        if next(num_read) == 15:
            time.sleep(0.6)  # a window is written twice a second
            stop.set()

    with pytest.raises(Stopped):
        rehearsal.index(records, stop=stop, on_read=stop_half_way)
    done = rehearsal.index(records)

    assert done.report.was_resumed
    assert (done.documents["embedded"], done.documents["unchanged"]) == (30, 0)
    assert add_up(done.documents)
    assert len(rehearsal.points()) == 120


def test_a_source_cannot_be_indexed_twice_at_once(rehearsal):
    refused = []

    def try_again(item):
        with pytest.raises(RunBusy, match="is being indexed") as caught:
            rehearsal.index([Record("a.txt", "text")], store=UnusedStore())
        refused.append(caught.value)

    rehearsal.index([Record("a.txt", paragraphs(2))], on_read=try_again)

    assert len(refused) == 1
    assert len(rehearsal.points()) == 2


class UnusedStore:
    """A run that is refused does not get as far as its store."""

    def create_collection(self, collection):
        """The collection is there."""

    def close(self):
        """Nothing is open."""


def test_nothing_is_pruned_when_a_record_could_not_be_told_by_its_id(rehearsal):
    rehearsal.index([Record("a", "the first"), Record("b", "the second")])

    done = rehearsal.index([Record("a", "the first"), Unreadable("line 2", 1, "Not JSON.", stage="line")])

    assert (done.report.exit_code, done.documents["pruned"]) == (3, 0)
    assert len(rehearsal.points()) == 2


def test_a_point_knows_its_page_and_not_all_pages(rehearsal):
    pages = ["words of the first page.", "words of the second page.", "words of the third page."]
    text = "\n\n".join(pages)
    starts = [text.index(page) for page in pages]

    rehearsal.index([Record("a.pdf", text, {"pages": starts}, reader="pdf/1")])

    assert [point.payload["metadata"] for point in rehearsal.points()] == [{"page": n} for n in (1, 2, 3)]


def test_a_run_with_its_ledger_on_postgresql_ends_the_same(home, postgres_url):
    rehearsal = Rehearsal(home, database_url=postgres_url)
    records = [Record(f"{number}.txt", paragraphs(3, str(number))) for number in range(20)]
    rehearsal.index(records)

    done = rehearsal.index([*records[:18], Record("18.txt", paragraphs(1, "new"))])

    assert done.documents == {
        **dict.fromkeys(done.documents, 0), "seen": 19, "unchanged": 18, "embedded": 1, "pruned": 1,
    }  # fmt: skip
    assert len(rehearsal.points()) == 18 * 3 + 1
    assert not (home / ".embedctl" / "ledger.db").exists()
