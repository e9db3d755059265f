"""Reading texts of pages and clients takes time in proportion to their length.

Each function gets adversarial texts of two lengths. With four times the length, a quadratic one takes
sixteen times as long.
"""

import itertools
import time
from collections.abc import Callable

import pytest
from multidict import CIMultiDict

from prerender.admin.reasons import in_words
from prerender.browser.queue import section_of
from prerender.content import page_metadata, text_comparison
from prerender.extensions.markdown.convert import markdown_of
from prerender.gateway import needed_requests
from prerender.http import caching, conditional, forwarding_headers, negotiation
from prerender.http.client_address import client_address
from prerender.http.fields import Fields, members
from prerender.rendering import internal_host
from prerender.rendering.moved import with_canonical
from prerender.rendering.snapshot_builder import asset_fingerprint_of
from prerender.snapshots.snapshot import Snapshot
from prerender.telemetry.redaction import Redaction
from prerender.urls import references
from prerender.urls.ajax_crawling import ugly_to_pretty
from tests.support.pools import NO_ORIGIN, SITE

LENGTH = 6_000
FACTOR = 4
# The best of these runs counts: others are disturbed by what else runs on the machine.
RUNS = 4
# Too little to be measured; nothing quadratic takes so little.
SHORT_SECONDS = 0.02
_SEEDS = [
    "<link ", "<head ", "<title ", "<script ", "<link rel=stylesheet ", "<!--", "<", "<a",
    "<svg><title>", "&", "&#", '"', "'", "=", "/", "//", "/ ", "A ", " ", ",", ";", 'a="', "\\", "%",
    "%2", "[", "(", "#!", "?", 'W/"', "for=", "http://127.0.0.1:", "q=0.", "\n", "*", "_", "`",
    "url=", 'anchor="', "aaaaaaa ",
]  # fmt: skip


_ENDINGS = ("", ">", '"', " ")


def _address(text: str) -> object:
    fields = Fields([("forwarded", f"Forwarded: {text}".encode())])
    return client_address("127.0.0.1", fields, ())


_READERS: dict[str, Callable[[str], object]] = {
    "canonical": lambda text: with_canonical(text, 3, text),
    "title": lambda text: Snapshot(200, (), text.encode(), '"x"', 0).title,
    "fingerprint": lambda text: asset_fingerprint_of(text.encode()),
    "internal host": internal_host.replacing(NO_ORIGIN, SITE),
    "metadata": lambda text: page_metadata.read(text.encode(), "https://www.example.com/"),
    "markdown": lambda text: markdown_of(f"<p>x{text}".encode(), "https://www.example.com/"),
    "words": text_comparison._WORD.findall,
    "reasons": lambda text: in_words("RenderError", text),
    "section": lambda text: section_of(f"https://a.example/{text}"),
    "long poll": needed_requests._LONG_POLL.search,
    "cache control": lambda text: caching.directives(CIMultiDict({"Cache-Control": text})),
    "entity tags": conditional._ENTITY_TAGS.findall,
    "weights": negotiation.preferences,
    "members": members,
    "forwarded": _address,
    "Refresh": lambda text: forwarding_headers.publish_all(
        CIMultiDict({"Refresh": text, "Link": text}), NO_ORIGIN, SITE
    ),
    "links": lambda text: references.pretty_links(text, "https://a.example/", ("a.example",)),
    "reference": lambda text: references.pretty_reference(
        text, "https://a.example/", ("a.example",)
    ),
    "ugly": lambda text: ugly_to_pretty(f"/?_escaped_fragment_={text}"),
    "redaction": Redaction(["token", "*secret*"]),
}


@pytest.mark.heavy
@pytest.mark.parametrize("every", [1, pytest.param(len(_ENDINGS), marks=pytest.mark.long)])
@pytest.mark.parametrize("name", _READERS)
def test_reading_is_linear(name: str, every: int) -> None:
    """``every``: the number of endings that each text gets; with one, by turns."""
    read = _READERS[name]
    slow = {}
    for number, seed in enumerate(_SEEDS):
        short = seed * (LENGTH // len(seed))
        for ending in itertools.islice(itertools.cycle(_ENDINGS), number, number + every):
            longer = _seconds(read, short * FACTOR + ending)
            if (
                longer > SHORT_SECONDS
                and longer > (seconds := _seconds(read, short)) * FACTOR * 2.5
            ):
                slow[seed, ending] = (seconds, longer)
    assert not slow


def _seconds(read: Callable[[str], object], text: str) -> float:
    best = float("inf")
    for _ in range(RUNS):
        began = time.thread_time()
        read(text)
        best = min(best, time.thread_time() - began)
        if best < SHORT_SECONDS:
            break
    return best
