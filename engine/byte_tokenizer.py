"""A tokenizer that needs no files: every byte of UTF-8 is a token. Rehearsals and tests run on it."""

from tokenizers import Tokenizer, models, pre_tokenizers, processors

BOS, EOS = "<s>", "</s>"


def byte_tokenizer() -> Tokenizer:
    """256 byte tokens (ids 2 to 257) between <s> (0) and </s> (1); "<s>" in a text is three bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate([BOS, EOS, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False, trim_offsets=False
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A {EOS}", special_tokens=[(BOS, vocab[BOS]), (EOS, vocab[EOS])]
    )
    return tokenizer
