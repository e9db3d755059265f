"""The histories of pages."""

import random
import zlib
from dataclasses import replace

import pytest

from prerender.errors import BadEntry
from prerender.extensions.dashboard.history import (
    History,
    RenderSummary,
    Version,
    decode,
    encode,
    text_of,
)
from prerender.snapshots.snapshot import Facts, Fetch, Snapshot, Timings

URL = "https://www.example.com/a/b"


def test_the_text_of_a_page() -> None:
    body = (
        b"<title>no</title><body>One<script>no()</script><style>no{}</style><p>T<!-- -->wo <b>three</b>"
        b"<noscript>no</noscript><template>no</template><div><template shadowrootmode=open>four"
        b"</template></div><textarea>five</textarea>"
    )
    assert text_of(body) == "One\nTwo\nthree\nfour\nfive"


FETCH = Fetch("GET", URL, "script", "cached", 200, 10, 0.1, 0.2, "")
RENDER = RenderSummary(
    1.5, 0.5, "render_timeout", "why", 200, Timings(0.1, 0.2, 0.3, 0.4, (FETCH,)),
    Facts("cut-off", settled="cut_off", errors=("x",), failed_requests=(URL,)),
)  # fmt: skip
VERSION = Version(1.0, 200, '"x"', 10, "title", "text \u00e4 \udcff")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", ""),
        (b"<", "<"),
        (b"<title>", ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"<div>" * 100_000, ""),
    ],
)
def test_the_text_of_odd_pages(body: bytes, text: str) -> None:
    assert text_of(body) == text


def test_histories_are_what_they_were() -> None:
    history = History("key", "/#!a", RENDER, (VERSION, replace(VERSION, time=0.5)))
    assert decode(encode(history)) == history
    assert decode(encode(History("key", "/"))) == History("key", "/")


@pytest.mark.heavy
def test_bad_histories_are_told_from_good_ones() -> None:
    good = encode(History("key", "/", RENDER, (VERSION,)))
    magic = good[:12]
    bad = [
        b"", b"x", good[:-3], magic, b"PRS1" + good[4:], magic + zlib.compress(b"[]"),
        magic + zlib.compress(b'{"path": 1}'),
        magic + zlib.compress(b'{"path": "", "render": {}, "versions": []}'),
        magic + zlib.compress(b"[" * 10**6), magic + zlib.compress(b" " * 10**8),
    ]  # fmt: skip
    for data in bad:
        with pytest.raises(BadEntry):
            decode(data)


def test_errors_of_old_releases_are_read() -> None:
    summary = RenderSummary(1.0, 0.5, "PoolBusy")
    assert decode(encode(History("key", "/", summary))).render == replace(
        summary, error="pool_busy"
    )


def snapshot(text: str) -> Snapshot:
    return Snapshot(200, (), f"<title>{text}</title><p>{text}".encode(), f'"{text}"', 1)


def test_a_version_begins_when_the_content_changes() -> None:
    history = History("key", "/")
    for text in ("a", "a", "b", "c", "d"):
        history = history.with_version(ord(text), snapshot(text), 3)
    assert [version.text for version in history.versions] == ["d", "c", "b"]
    assert history.with_version(0.0, snapshot("d"), 3) is history


@pytest.mark.heavy
def test_a_history_is_bounded() -> None:
    history = History("key", "/", RENDER)
    for number in range(15):
        text = " ".join(str(random.Random(number).getrandbits(64)) for _ in range(4000))
        history = history.with_version(1.0, snapshot(text), 50)
    data = encode(history)
    assert len(data) <= 256 * 1024
    assert decode(data).versions == history.versions[: len(decode(data).versions)]
