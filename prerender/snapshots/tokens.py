"""The size of texts in tokens of language models. Pure."""


def tokens_of(text: str) -> int:
    """About how many tokens a language model reads: one for four ASCII characters, or two others."""
    ascii_ones = len(text.encode("ascii", "ignore"))
    return -(-ascii_ones // 4) + -(-(len(text) - ascii_ones) // 2)
