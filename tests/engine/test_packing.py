"""Packing, step sizes, buckets and runs of equal length: pure functions."""

import numpy as np
import pytest

from embedctl.engine.buckets import Bucket, bucket_of, token_bucket
from embedctl.engine.packing import StepSize, pack


def sequences(*lengths):
    return [np.arange(length, dtype=np.int32) + 1 for length in lengths]


def test_packed_sequences_lie_end_to_end_with_positions_from_zero():
    packed = pack(sequences(3, 1, 2), num_prompt_tokens=[2, 0, 1])

    assert packed.input_ids.tolist() == [1, 2, 3, 1, 1, 2]
    assert packed.position_ids.tolist() == [0, 1, 2, 0, 0, 1]
    assert packed.cu_seqlens.tolist() == [0, 3, 4, 6]
    assert packed.num_prompt_tokens.tolist() == [2, 0, 1]
    assert (packed.num_sequences, packed.num_tokens, packed.max_seqlen) == (3, 6, 3)


@pytest.mark.parametrize(
    ("lengths", "held", "max_tokens", "packed", "padded"),
    [
        ([5, 5, 5], StepSize(), 10, 2, 2),
        ([5, 5, 5], StepSize(), 4, 0, 0),
        ([8, 1, 1], StepSize(), 10, 3, 1),
        ([1, 1, 1], StepSize(1, 8, 8), 10, 2, 0),
        ([1, 1, 1], StepSize(1, 8, 8), 24, 3, 2),
        ([4], StepSize(), 4, 1, 1),
    ],
)
def test_a_step_takes_sequences_up_to_its_tokens(lengths, held, max_tokens, packed, padded):
    assert held.num_fitting(np.array(lengths), max_tokens, is_padded=False) == packed
    assert held.num_fitting(np.array(lengths), max_tokens, is_padded=True) == padded


@pytest.mark.parametrize(
    ("num_tokens", "bucket"),
    [(1, 64), (64, 64), (65, 128), (1000, 1024), (1024, 1024), (1025, 1280), (2048, 2048), (2049, 2304)],
)
def test_tokens_round_up_finely_for_small_steps_and_coarsely_for_large_ones(num_tokens, bucket):
    assert token_bucket(num_tokens) == bucket


@pytest.mark.parametrize(
    ("lengths", "bucket"),
    [
        ([64], Bucket(64, 1, 64)),
        ([10], Bucket(64, 4, 64)),  # the pad tokens are a sequence of their own
        ([32, 32], Bucket(64, 4, 64)),
        ([16] * 4, Bucket(64, 4, 64)),
        ([256] * 4, Bucket(1024, 4, 256)),
        ([300] * 5, Bucket(1536, 16, 512)),
        ([1030], Bucket(1280, 4, 2048)),
    ],
)
def test_a_batch_has_the_smallest_bucket_that_holds_it_and_its_pad_tokens(lengths, bucket):
    assert bucket_of(pack(sequences(*lengths)), max_tokens=4096) == bucket


@pytest.mark.parametrize("lengths", [[4097], [1] * 1025, [4000, 200]])
def test_what_is_larger_than_every_bucket_has_none(lengths):
    assert bucket_of(pack(sequences(*lengths)), max_tokens=4096) is None
