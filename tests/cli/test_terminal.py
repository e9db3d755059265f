"""What commands print."""

import pytest

from prerender.cli.terminal import printable


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("größe\t\N{EM DASH}\n", "größe\t\N{EM DASH}\n"),
        ("a,b\r\nc,d\r\n", "a,b\r\nc,d\r\n"),
        ("over\rwritten", r"over\rwritten"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\N{RIGHT-TO-LEFT OVERRIDE}", r"\u202e"),
        ("\ud800", r"\ud800"),
    ],
)
def test_controls_are_escaped(text: str, printed: str) -> None:
    assert printable(text) == printed
