"""A site with all faults that ``prerender check`` knows, and its correct twin.

Both have the same pages, so a finding on only one of them is due to the fault. Neither needs a
proxy: they respond to ugly URLs themselves.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

Answer = str | web.Response | Callable[[web.Request], Awaitable[web.StreamResponse]]

WORDS = (
    "Some words about {0} that are the same for people and for crawlers. "
    "They are followed by a second sentence, because a page with hardly any text is a finding."
)
SPAM = "Buy cheap replica watches and free casino chips from our best friends."
OPT_IN = '<meta name="fragment" content="!">'
TOKEN = "_escaped_fragment_"


@dataclass(frozen=True)
class Fault:
    """A page without and with a fault, which ``check`` calls ``codes``.

    ``state``: the page is this state of a document. ``listed``: how a faulty sitemap lists it.
    """

    codes: set[str]
    clean: Answer
    faulty: Answer
    state: str = ""
    listed: str = ""


def page(body: str = "", head: str = "", title: str = "<title>{0}</title>", more: str = "") -> str:
    """A page about {0}. ``title`` replaces its title, ``more`` follows its words."""
    description = "<meta name=description content='About {0}'>"
    return (
        f"<!DOCTYPE html><html lang=en><head>{title}{description}{head}</head>"
        f"<body>{body or f'<h1>{{0}}</h1><p>{WORDS}</p>'}{more}</body></html>"
    )


def made(text: str = WORDS, head: str = "") -> str:
    """A page whose text a script creates."""
    script = f"document.body.innerHTML = '<h1>{{0}}</h1><p>{text}</p>'"
    return page(f"<script>{script}</script>", head)


def redirect(location: str, status: int = 301) -> web.Response:
    return web.Response(status=status, headers={"Location": location})


def asked(crawler: Answer, person: Answer) -> Answer:
    """Crawlers at ugly URLs get another page than visitors."""

    async def answer(request: web.Request) -> web.StreamResponse:
        chosen = crawler if TOKEN in request.query else person
        return await respond(request, chosen)

    return answer


def seen(crawler: Answer, person: Answer) -> Answer:
    """The same, by User-Agent."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await respond(
            request, person if "Chrome/" in request.headers["User-Agent"] else crawler
        )

    return answer


def state(
    snapshot: Answer, document: Answer | None = None, missing: Answer | None = None
) -> Answer:
    """A document whose only state is ``/one``, and the ``snapshot`` of that."""

    async def answer(request: web.Request) -> web.StreamResponse:
        wanted = request.query.get(TOKEN)
        if wanted is None:
            return await respond(request, document or made())
        if wanted != "/one":
            return await respond(request, missing or web.Response(status=404, text="no such state"))
        return await respond(request, snapshot)

    return answer


async def cut(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def slow(request: web.Request) -> web.StreamResponse:
    if "Chrome/" not in request.headers["User-Agent"]:
        await asyncio.sleep(5.2)
    return await respond(request, page())


def link(href: str) -> str:
    return f"<a href='{href}'>more</a>"


def canonical(href: str) -> str:
    return f"<link rel=canonical href='{href}'>"


def linked(value: str) -> web.Response:
    return web.Response(text=page(), content_type="text/html", headers={"Link": value})


def judged(cache_status: str) -> web.Response:
    """A page with the Cache-Status of the proxy."""
    headers = {"Cache-Status": cache_status}
    return web.Response(text=page(), content_type="text/html", headers=headers)


def spoken(more: str) -> str:
    return page(f"<script>document.body.innerHTML = `<h1>{{0}}</h1><p>{WORDS}</p>{more}`</script>")


LABELLED = "<button aria-label=Menu>☰</button><h2>Part one</h2>"
HIDDEN = "<p hidden>What a menu says when it has been opened by somebody.</p>"
FAULTS: dict[str, Fault] = {
    "plain": Fault(set(), page(), page()),
    "state": Fault(set(), state(page()), state(page()), "/one"),
    "opted-in": Fault(set(), asked(page(), made(head=OPT_IN)), asked(page(), made(head=OPT_IN))),
    "unreachable": Fault({"unreachable"}, page(), cut),
    "failing": Fault({"status"}, page(), web.Response(status=500)),
    "nowhere": Fault({"status"}, page(), web.Response(status=302)),
    "gone": Fault({"not-found", "title-missing"}, page(), web.Response(
        status=410, text=".", content_type="text/html")),
    "snapshot-gone": Fault({"not-found"}, asked(page(), made(head=OPT_IN)), asked(
        web.Response(status=404), made(head=OPT_IN))),
    "shell": Fault({"shell", "empty"}, state(page()), state(made()), "/one"),
    "empty": Fault({"empty"}, page(), page("<p></p>")),
    "no-opt-in": Fault({"no-snapshot", "empty"}, asked(page(), made(head=OPT_IN)), made()),
    "opt-in-in-body": Fault({"opt-in-invalid"}, page(), page(more=OPT_IN)),
    "opt-in-with-spaces": Fault(
        {"opt-in-invalid"}, page(), page(head=OPT_IN.replace("!", " ! "))),
    "needless": Fault({"opt-in-needless"}, page(), asked(page(), page(head=OPT_IN))),
    "needless-script": Fault(
        {"opt-in-needless"}, page(), asked(page(), page(head=OPT_IN, more="<script>1</script>"))),
    "cloaked": Fault({"cloaked"}, page(), seen(page(more=f"<p>{SPAM}"), page())),
    "incomplete": Fault({"incomplete"}, page(), seen(page(), page(more=f"<p>{SPAM}"))),
    "canonical-ugly": Fault({"canonical-ugly"}, page(head=canonical("/canonical-ugly")), page(
        head=canonical("?_escaped_fragment_="))),
    "canonical-header": Fault(
        {"canonical-ugly"}, linked("</canonical-header>; rel=canonical"), linked(
            '</canonical-header?_escaped_fragment_=>; rel="canonical"')),
    "canonical-lost": Fault({"canonical-broken"}, page(), page(head=canonical("/nothing-here"))),
    "canonical-state": Fault(
        {"canonical-state"}, state(page(head=canonical("/canonical-state#!/one"))), state(
            page(head=canonical("/canonical-state"))), "/one"),
    "canonical-elsewhere": Fault({"canonical-elsewhere"}, page(), page(head=canonical("/plain"))),
    "link-ugly": Fault({"link-ugly"}, page(more=link("/state#!/one")), page(
        more=link("/state?_escaped_fragment_=/one"))),
    "frame-ugly": Fault({"link-ugly"}, page(), page(
        head="<meta property=og:url content='/frame-ugly?_escaped_fragment_='>")),
    "link-header": Fault({"link-ugly"}, linked("</plain>; rel=next"), linked(
        "</state?_escaped_fragment_=/one>; rel=next")),
    "made-link-ugly": Fault({"link-ugly", "differs", "accessibility"}, page(), page(
        more=f"<script>document.body.innerHTML += \"{link('?_escaped_fragment_=')}\"</script>")),
    "link-hash": Fault({"link-hash"}, page(more=link("#top")), page(more=link("#/route"))),
    "made-link-hash": Fault({"link-hash", "differs", "accessibility"}, page(), page(
        more=f"<script>document.body.innerHTML += \"{link('#/route')}\"</script>")),
    "listed-ugly": Fault({"sitemap-ugly"}, state(page()), state(page()), "/one",
        "/listed-ugly?_escaped_fragment_=/one"),
    "listed-hash": Fault({"link-hash"}, page(), page(), "", "/listed-hash#/route"),
    "left-in": Fault({"meta-fragment"}, state(page()), state(page(head=OPT_IN)), "/one"),
    "moved": Fault({"redirect"}, page(), redirect("/plain")),
    "moved-ugly": Fault({"redirect-ugly"}, state(page()), state(
        redirect("/state?_escaped_fragment_=/one"), redirect("/state")), "/one"),
    "moved-state": Fault({"redirect-state"}, state(page()), state(
        redirect("/state"), redirect("/state")), "/one"),
    "moved-to-a-static-page": Fault({"redirect"}, state(page()), state(redirect("/plain")), "/one"),
    "robots": Fault({"robots"}, page(), page()),
    "noindex": Fault({"noindex"}, page(), page(head="<meta name=robots content=noindex>")),
    "no-title": Fault({"title-missing"}, page(), page(title="")),
    "two-titles": Fault(
        {"title-several"}, page(), page(title="<title>{0}</title><title>two</title>")),
    "same-title": Fault({"title-duplicate"}, page(), page(title="<title>plain</title>")),
    "no-description": Fault({"description-missing"}, page(), page().replace("content=", "x=")),
    "same-description": Fault(
        {"description-duplicate"}, page(), page().replace("'About {0}'", "'About plain'")),
    "slow": Fault({"slow"}, page(), slow),
    "verdict": Fault(
        {"verdict"}, judged("prerender; hit; ttl=60, cdn; fwd=miss; detail=failed"),
        judged('"a, b"; hit, prerender; fwd=miss; detail=cut-off-coalesced, cdn; fwd=miss')),
    "no-look": Fault({"no-look"}, page(), seen(page(), web.Response(
        body=b"%PDF", headers={"Content-Disposition": "attachment"}, content_type="text/x"))),
    "without-labels": Fault({"accessibility"}, state(page(more=LABELLED), spoken(LABELLED)), state(
        page(more=LABELLED.replace(" aria-label=Menu", "").replace("h2", "b")), spoken(LABELLED)),
        "/one"),
    "throws": Fault({"script-error"}, page(more="<script>0</script>"),
        page(more="<script>missing()</script>")),
    "refused-port": Fault({"request-failed", "script-error"}, page(), page(
        more="<script>fetch(`http://${location.hostname}:2/data`).catch(() => 0)</script>")),
    "refused": Fault(
        {"incomplete", "request-refused"}, page(), seen(page(), page(more=f"<p>{SPAM}" + (
            "<script>new Image().src = '//www.google-analytics.com/a.gif'</script>")))),
    "wall": Fault(
        {"thin-text"}, state(page()), state(
            page("<h1>{0}</h1><p>Accept our cookies"), made("Accept our cookies")), "/one"),
    "hidden": Fault({"hidden"}, page(), page(more=HIDDEN)),
    "differs": Fault({"differs"}, page(), seen(page(more="<p>now 12:01"), page(more="<p>now 12:59"))),
}  # fmt: skip


async def respond(request: web.Request, answer: Answer) -> web.StreamResponse:
    if isinstance(answer, str):
        return web.Response(text=answer.replace("{0}", request.path[1:]), content_type="text/html")
    if isinstance(answer, web.Response):
        body = answer.body
        if isinstance(body, bytes):
            body = body.replace(b"{0}", request.path[1:].encode())
        return web.Response(status=answer.status, headers=answer.headers, body=body)
    return await answer(request)


@dataclass
class Site:
    """The faulty or the correct site; ``application`` serves it. Its sitemap lists ``names``."""

    faulty: bool
    names: Sequence[str] = (*FAULTS,)
    made_up: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/{path:.*}", self._answer)
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        name = request.path[1:]
        if name == "sitemap.xml":
            return self._sitemap(request)
        if name == "robots.txt":
            forbidden = "/robots" if self.faulty else "/nothing"
            return web.Response(text=f"User-agent: *\nDisallow: {forbidden}\n")
        if name in FAULTS:
            fault = FAULTS[name]
            return await respond(request, fault.faulty if self.faulty else fault.clean)
        if self.faulty and len(name) > 12:
            return await respond(request, page())
        return web.Response(status=404, text="no such page")

    def _sitemap(self, request: web.Request) -> web.Response:
        site = f"http://{request.host}"
        urls = []
        for name in self.names:
            fault = FAULTS[name]
            own = f"/{name}" + (f"#!{fault.state}" if fault.state else "")
            urls.append(site + (fault.listed if self.faulty and fault.listed else own))
        entries = "".join(f"<url><loc>{url}</loc></url>" for url in urls)
        return web.Response(
            text=f"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>{entries}</urlset>",
            content_type="application/xml",
        )
