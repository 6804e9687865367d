"""Equal inputs share one computation within a process."""

import numpy as np

from embedctl.pipeline.sharing import SharedVectors


def test_what_another_thread_finished_since_the_caller_looked_is_not_computed_again():
    shared, vector = SharedVectors(), np.ones(4, np.float32)
    mine, _ = shared.claim(["a"])
    assert shared.get(["a"]) == {}
    shared.finish(mine, {"a": vector})

    mine, theirs = shared.claim(["a", "b"])

    assert mine == ["b"]
    assert np.array_equal(theirs["a"].result(timeout=0)["a"], vector)


def test_an_input_that_failed_is_the_next_ones_to_compute():
    shared = SharedVectors()
    mine, _ = shared.claim(["a"])
    _, theirs = shared.claim(["a"])
    shared.finish(mine, {})

    assert theirs["a"].result(timeout=0) == {}
    assert shared.claim(["a"]) == (["a"], {})


def test_a_kept_vector_does_not_keep_the_others_of_its_computation_in_memory():
    shared, vectors = SharedVectors(), np.ones((256, 4), np.float32)
    mine, _ = shared.claim(["a"])
    shared.finish(mine, {"a": vectors[7]})

    assert shared.get(["a"])["a"].base is None
