"""Sizes to which a packed step is padded where one captured graph per size is replayed."""

from dataclasses import dataclass

from embedctl.engine.packing import PackedBatch

#: Up to here tokens are rounded up finely: small steps are the latency of a query, and padding would be a
#: large share of them.
FINE_TOKENS = 1024
FINE_MULTIPLE = 64
COARSE_MULTIPLE = 256
#: Sequences and longest sequence cost little when they are too large, so few sizes are enough.
SEQUENCE_SIZES = (1, 4, 16, 64, 256, 1024)
SEQLEN_SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """The size of one captured graph. num_sequences counts the sequence that the pad tokens form."""

    num_tokens: int
    num_sequences: int
    max_seqlen: int


def token_bucket(num_tokens: int) -> int:
    """Tokens rounded up to a multiple of 64 (up to 1,024) or 256 (above)."""
    multiple = FINE_MULTIPLE if num_tokens <= FINE_TOKENS else COARSE_MULTIPLE
    return -(-num_tokens // multiple) * multiple


def bucket_of(packed: PackedBatch, max_tokens: int) -> Bucket | None:
    """The bucket that holds the batch and its pad tokens; None when it is larger than any."""
    num_tokens = token_bucket(packed.num_tokens)
    num_pad = num_tokens - packed.num_tokens
    num_sequences = _round_up(packed.num_sequences + (num_pad > 0), SEQUENCE_SIZES)
    max_seqlen = _round_up(max(packed.max_seqlen, num_pad), SEQLEN_SIZES)
    if num_tokens > max_tokens or num_sequences is None or max_seqlen is None:
        return None
    return Bucket(num_tokens, num_sequences, max_seqlen)


def _round_up(value: int, sizes: tuple[int, ...]) -> int | None:
    return next((size for size in sizes if size >= value), None)
