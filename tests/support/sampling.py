"""Which cases of a long matrix are in the ordinary suite."""

from collections.abc import Sequence
from typing import Any

import pytest


def sampled(values: Sequence[Any], every: int) -> list[Any]:
    """Parameters of a test: each ``every``-th value, and the others in the long tests only."""
    return [
        pytest.param(value, marks=() if number % every == 0 else pytest.mark.long)
        for number, value in enumerate(values)
    ]
