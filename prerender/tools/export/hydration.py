"""Snapshots that keep the scripts of their document, so that the application starts for visitors.

The body is that of the document, with the content of its mount points filled in: what else scripts have
added to the body (dialogs, announcements) they add again. The head is that of the snapshot, with the
scripts of the document.
"""

import asyncio
from copy import deepcopy
from dataclasses import replace

import lxml.html
from lxml.etree import XPath
from lxml.html import HtmlElement
from multidict import CIMultiDict
from yarl import URL

from prerender.gateway.document import fetch
from prerender.gateway.upstream import Upstream
from prerender.snapshots.parsed_html import parse
from prerender.snapshots.snapshot import Snapshot, SnapshotResult, Snapshots, etag_of
from prerender.snapshots.target import Target

_HEAD_SCRIPTS = XPath('./script[not(@type="application/ld+json")] | ./link[@rel="modulepreload"]')
_PROGRAMS = XPath('.//script[not(@type="application/ld+json")]')
_WITH_ID = XPath(".//*[@id][not(self::script) and not(self::template)]")
_LENGTH = XPath("string-length(normalize-space(.))")
_DOCTYPE = "<!DOCTYPE html>"


class WithScripts:
    """The snapshots of ``inner`` with the scripts of their documents."""

    def __init__(self, inner: Snapshots, upstream: Upstream, public: URL, most_bytes: int) -> None:
        self._inner = inner
        self._upstream = upstream
        self._public = public
        self._most_bytes = most_bytes

    async def snapshot(self, target: Target) -> SnapshotResult:
        """The snapshot of a target. Raises RenderError, OriginError or NotRenderable."""
        result = await self._inner.snapshot(target)
        if result.snapshot.status != 200:
            return result
        document = await fetch(
            self._upstream, self._public, target.request_target, self._most_bytes, CIMultiDict()
        )
        snapshot = await asyncio.to_thread(_with_scripts, result.snapshot, document.body)
        return replace(result, snapshot=snapshot)


def _with_scripts(snapshot: Snapshot, document: bytes) -> Snapshot:
    body = merged(snapshot.body, document)
    return replace(snapshot, body=body, etag=etag_of(snapshot.status, snapshot.headers, body))


def merged(html: bytes, document: bytes) -> bytes:
    """The HTML of a snapshot with the scripts of its document."""
    made, source = parse(html), parse(document)
    if made is None or source is None:
        return html
    head, own_head = made.find("head"), source.find("head")
    body, own_body = made.find("body"), source.find("body")
    if head is None or body is None or own_body is None:
        return html
    if own_head is not None:
        known = {lxml.html.tostring(one, with_tail=False) for one in head}
        head.extend(
            deepcopy(one)
            for one in _HEAD_SCRIPTS(own_head)
            if lxml.html.tostring(one, with_tail=False) not in known
        )
    if _filled(own_body, body):
        made.replace(body, own_body)
    else:
        body.extend(deepcopy(script) for script in _PROGRAMS(own_body))
    return f"{_DOCTYPE}{lxml.html.tostring(made, encoding='unicode')}\n".encode("utf-8", "replace")


def _filled(own: HtmlElement, made: HtmlElement) -> bool:
    """Fill the mount points of a document: outermost elements with an id and less text than in the
    snapshot. Returns whether there is one."""
    shown = {element.get("id"): element for element in _WITH_ID(made)}
    done: set[HtmlElement] = set()
    for element in _WITH_ID(own):
        source = shown.get(element.get("id"))
        inside = any(around in done for around in element.iterancestors())
        if source is None or inside or _PROGRAMS(element) or _LENGTH(source) <= _LENGTH(element):
            continue
        element[:] = list(deepcopy(source))
        element.text = source.text
        done.add(element)
    return bool(done)
