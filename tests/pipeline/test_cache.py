"""The cache of vectors: bounded, shared by threads, never worth a failure. And the sharing of running
computations."""

import sqlite3
import threading

import numpy as np
import pytest

from embedctl.pipeline.cache import ENTRY_OVERHEAD_BYTES, NoCache, SqliteCache, open_cache
from embedctl.pipeline.sharing import ENTRY_OVERHEAD_BYTES as ENTRY_OVERHEAD
from embedctl.pipeline.sharing import SharedVectors

SPACE, OTHER = "ab" * 8, "cd" * 8


def key(number):
    return f"{number:032x}"


def vector(number, dim=16):
    return np.full(dim, number, np.float32)


def test_what_was_put_is_found_again_also_by_another_process(tmp_path):
    first = SqliteCache(tmp_path / "cache.db", SPACE, 1 << 20)
    first.put({key(1): vector(1), key(2): vector(2)})
    first.close()
    second = SqliteCache(tmp_path / "cache.db", SPACE, 1 << 20)

    found = second.get([key(2), key(1), key(3), key(2)])

    assert found.keys() == {key(1), key(2)}
    np.testing.assert_array_equal(found[key(2)], vector(2))
    second.close()


def test_a_vector_of_one_space_is_never_given_out_for_another(tmp_path):
    one, other = (SqliteCache(tmp_path / "cache.db", space, 1 << 20) for space in (SPACE, OTHER))
    one.put({key(1): vector(1)})

    assert other.get([key(1)]) == {}
    one.close()
    other.close()


def test_the_least_recently_used_go_first_and_the_size_stays_below_the_limit(tmp_path):
    entry = vector(0).nbytes + ENTRY_OVERHEAD_BYTES
    cache = SqliteCache(tmp_path / "cache.db", SPACE, 100 * entry)
    cache.put({key(number): vector(number) for number in range(50)})
    cache.get([key(0)])
    for number in range(50, 140):
        cache.put({key(number): vector(number)})

    assert cache.size_bytes() <= 100 * entry
    assert cache.get([key(0), key(1), key(139)]).keys() == {key(0), key(139)}
    cache.close()


def test_the_same_entry_again_does_not_count_twice(tmp_path):
    cache = SqliteCache(tmp_path / "cache.db", SPACE, 1 << 20)
    for _ in range(5):
        cache.put({key(1): vector(1)})

    assert cache.size_bytes() == vector(1).nbytes + ENTRY_OVERHEAD_BYTES
    cache.close()


def test_a_damaged_file_is_replaced_by_an_empty_cache(tmp_path):
    (tmp_path / "cache.db").write_bytes(b"no database at all " * 1000)

    cache = SqliteCache(tmp_path / "cache.db", SPACE, 1 << 20)
    cache.put({key(1): vector(1)})

    assert cache.get([key(1)]).keys() == {key(1)}
    cache.close()


def test_a_cache_that_cannot_be_written_forgets_and_does_not_fail(tmp_path):
    cache = SqliteCache(tmp_path / "no" / "such" / "folder.db", SPACE, 1 << 20)
    cache.put({key(1): vector(1)})
    cache.get([key(1)])
    cache.close()


def test_a_file_that_breaks_while_it_is_open_does_not_fail_its_user(tmp_path):
    cache = SqliteCache(tmp_path / "cache.db", SPACE, 1 << 20)
    with sqlite3.connect(tmp_path / "cache.db") as other:
        other.execute("DROP TABLE vectors")
    other.close()

    cache.put({key(1): vector(1)})

    assert cache.get([key(1)]) == {}
    cache.close()


def test_a_bound_of_zero_is_no_cache(tmp_path):
    assert isinstance(open_cache(tmp_path / "cache.db", SPACE, 0), NoCache)


def test_threads_write_and_read_at_once(tmp_path):
    cache = SqliteCache(tmp_path / "cache.db", SPACE, 1 << 20)

    def work(offset):
        for number in range(offset, offset + 50):
            cache.put({key(number): vector(number)})
            cache.get([key(number)])

    threads = [threading.Thread(target=work, args=(50 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(cache.get([key(number) for number in range(200)])) == 200
    cache.close()


def test_an_input_under_way_is_waited_for_and_not_computed_again():
    shared = SharedVectors()
    mine, theirs = shared.claim(["a", "b", "a"])
    assert (mine, theirs) == (["a", "b"], {})

    again, running = shared.claim(["b", "c"])
    shared.finish(mine, {"a": vector(1), "b": vector(2)})

    assert again == ["c"]
    np.testing.assert_array_equal(running["b"].result(timeout=0)["b"], vector(2))
    assert shared.get(["a", "c"]).keys() == {"a"}


def test_a_computation_that_failed_is_told_to_those_who_wait():
    shared = SharedVectors()
    mine, _ = shared.claim(["a"])
    _, running = shared.claim(["a"])

    shared.finish(mine, {})

    assert running["a"].result(timeout=0) == {}
    assert shared.claim(["a"])[0] == ["a"]


@pytest.mark.parametrize(("max_bytes", "kept"), [(3 * (64 + ENTRY_OVERHEAD), {"b", "c", "d"}), (0, set())])
def test_finished_vectors_are_remembered_within_a_bound(max_bytes, kept):
    shared = SharedVectors(max_bytes)
    for name in "abcd":
        mine, _ = shared.claim([name])
        shared.finish(mine, {name: vector(1)})

    assert shared.get("abcd").keys() == kept
