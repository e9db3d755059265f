"""State that no attribute holds is in the snapshot: a reader without scripts sees what visitors see."""

import asyncio

import pytest
from aiohttp import web

from prerender.browser.settling.patience import ACKNOWLEDGED_SECONDS, UNPRODUCTIVE_SECONDS
from tests.conftest import StartOrigin, StartProxy, pages
from tests.support.sampling import sampled

PAGE = """<!DOCTYPE html><title>t</title><style>:not(:defined) { visibility: hidden }</style>
<div id="news" popover="manual">news</div><div id="closed" popover>closed</div>
<my-card>card</my-card><un-known>never defined</un-known><img id="picture"><img id="other" src="/x.png">
<input type="checkbox" id="some"><iframe id="written"></iframe><iframe id="empty"></iframe>
<iframe sandbox srcdoc="<p>boxed</p>"></iframe><script>
  news.showPopover();
  some.indeterminate = true;
  customElements.define("my-card", class extends HTMLElement {});
  written.contentDocument.body.innerHTML = "<h2>written</h2>";
  const canvas = Object.assign(document.createElement("canvas"), {width: 3, height: 2});
  canvas.toBlob((blob) => { picture.src = URL.createObjectURL(blob); });
</script>"""


async def test_state_that_no_attribute_holds(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    policy = "require-trusted-types-for 'script'"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    trusted = meta + '<p>text<iframe sandbox srcdoc="<p>boxed</p>"></iframe>'
    origin = await pages(start_origin, {"/": PAGE, "/trusted": trusted, "/x.png": "x"})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    text = (await proxy.crawl("/")).text
    assert '<div id="news" popover="manual" style="display: block !important;">news</div>' in text
    assert '<div id="closed" popover="">' in text
    assert ':not(:is(:defined, [data-prerender-state~=":defined"]))' in text
    assert '<my-card data-prerender-state=":defined">' in text
    assert "<un-known>" in text
    assert "&lt;h2&gt;written&lt;/h2&gt;" in text or "<h2>written</h2>" in text
    assert '<iframe id="empty"></iframe>' in text
    assert '<input type="checkbox" id="some" aria-checked="mixed">' in text
    assert '<img id="picture" src="data:image/png;base64,' in text
    assert '<img id="other" src="/x.png">' in text
    trusted_reply = await proxy.crawl("/trusted")
    assert (trusted_reply.status, "boxed" in trusted_reply.text) == (200, True)


async def test_a_socket_that_delivers_the_page_is_waited_for(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """Also if each part is in another kind of shadow root. One that only pings is not
    waited for, even if the page has sent it something."""
    pings = 0
    parts = ("first", "second", "third", "fourth", "fifth")

    async def deliver(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for part in parts:
            await socket.send_str(part)
            await asyncio.sleep(1.2)
        return socket

    async def ping(request: web.Request) -> web.WebSocketResponse:
        nonlocal pings
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for _ in range(10):
            pings += 1
            await socket.send_str("ping")
            await asyncio.sleep(1.2)
        return socket

    async def page(request: web.Request) -> web.Response:
        text = f"""<p>text<ul id="out"></ul><div id="attached"></div><div id="set"></div>
          <div id="declared"><template shadowrootmode="open"></template></div><script>
          const outs = [out, attached.attachShadow({{mode: "closed"}}), declared.shadowRoot];
          set.setHTMLUnsafe('<p><template shadowrootmode="open"></template></p>');
          outs.push(set.firstChild.shadowRoot, out);
          const socket = new WebSocket("wss://" + location.host + "/{request.query_string}");
          socket.onopen = () => {{ if (location.search === "?ping&asked") socket.send("subscribe"); }};
          socket.onmessage = (event) => {{
            if (event.data !== "ping") outs.shift().append(event.data);
          }};</script>"""
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.add_routes(
        [web.get("/deliver", deliver), web.get("/ping{asked:.*}", ping), web.get("/", page)]
    )
    site = await start_origin(application)
    proxy = await start_proxy(site.url, {"site": {"url": "https://www.example.com"}})
    text = (await proxy.crawl("/?deliver")).text
    assert [part for part in parts if part not in text] == []
    for query in ("ping", "ping&asked"):
        pings = 0
        assert (await proxy.crawl(f"/?{query}")).status == 200
        assert pings < 4


_ASKING = """<!DOCTYPE html><title>t</title><p id="out">waiting</p><script>
  const show = ({ data }) => {
    if (!data.startsWith("data")) return;
    out.textContent = data;
    window.prerenderReady = true;
  };
  const open = () => new WebSocket("wss://" + location.host + location.pathname + "/socket");
</script>"""
# Each response but the last one only acknowledges something.
_ACKNOWLEDGED = {
    "/graphql": """const socket = open();
      socket.onopen = () => socket.send("init");
      socket.onmessage = (event) => {
        if (event.data === "acknowledged") socket.send("start");
        show(event);
      };""",
    "/subscriptions": """const socket = open();
      socket.onopen = () => { socket.send("subscribe a"); socket.send("subscribe b"); };
      socket.onmessage = show;""",
    "/events": """const source = new EventSource("/events/source");
      source.addEventListener("connected", () => {});
      source.addEventListener("put", show);""",
    "/worker": """const worker = new Worker(URL.createObjectURL(new Blob([`
        onmessage = () => {
          postMessage("acknowledged");
          setTimeout(() => postMessage("data"), 600);
        };
        postMessage("ready");`])));
      worker.onmessage = (event) => {
        if (event.data === "ready") worker.postMessage("query");
        show(event);
      };""",
}


# The worker reports first, so that its own question has ended when it is asked at a port.
_PORTS = {
    "given": """const { port1, port2 } = new MessageChannel();
      port1.onmessage = show;
      const worker = work(`onmessage = ({ ports: [port] }) => respond(port)`);
      worker.onmessage = () => { port1.postMessage("query"); };
      worker.postMessage("port", [port2]);""",
    "given in options": """const { port1, port2 } = new MessageChannel();
      port1.onmessage = show;
      const worker = work(`onmessage = ({ ports: [port] }) => respond(port)`);
      worker.onmessage = () => { port1.postMessage("query"); };
      worker.postMessage("port", { transfer: [port2] });""",
    "received": """const worker = work(`const { port1, port2 } = new MessageChannel();
        respond(port1, [port2]);`);
      worker.onmessage = ({ ports: [port] }) => {
        port.onmessage = show;
        port.postMessage("query");
      };""",
}


@pytest.mark.parametrize("how", sampled([*_PORTS], 2))
async def test_responses_at_a_port_of_a_worker_are_waited_for(
    start_origin: StartOrigin, start_proxy: StartProxy, how: str
) -> None:
    """Longer than a message that may follow a report of the worker."""
    late_ms = round(1000 * (ACKNOWLEDGED_SECONDS + UNPRODUCTIVE_SECONDS) / 2)
    worker = f"""const work = (script) => new Worker(URL.createObjectURL(new Blob([`
      const respond = (port, ports = []) => {{
        port.onmessage = () => setTimeout(() => port.postMessage("data"), {late_ms});
        postMessage("ready", ports);
      }};`, script])));"""
    page = f"{_ASKING}<script>{worker}{_PORTS[how]}</script>"
    origin = await pages(start_origin, {"/": page})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    assert ">data<" in (await proxy.crawl("/")).text


async def test_data_after_an_acknowledgement_is_waited_for(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    async def page(request: web.Request) -> web.Response:
        script = f"<script>{_ACKNOWLEDGED[request.path]}</script>"
        return web.Response(text=_ASKING + script, content_type="text/html")

    async def socket(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for _ in range(2):
            await socket.receive()
            await socket.send_str("acknowledged")
        await socket.send_str("keep-alive")
        await asyncio.sleep(0.6)
        await socket.send_str("data")
        await socket.receive()
        return socket

    async def events(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(b"event: connected\ndata: 1\n\n")
        await asyncio.sleep(0.6)
        await stream.write(b"event: put\ndata: data\n\n")
        return stream

    application = web.Application()
    application.add_routes([web.get(path, page) for path in _ACKNOWLEDGED])
    application.add_routes([web.get("/{page}/socket", socket), web.get("/events/source", events)])
    site = await start_origin(application)
    proxy = await start_proxy(site.url, {"site": {"url": "https://www.example.com"}})
    replies = await asyncio.gather(*map(proxy.crawl, _ACKNOWLEDGED))
    shown = dict(zip(_ACKNOWLEDGED, replies, strict=True))
    assert [path for path, reply in shown.items() if ">data<" not in reply.text] == []


_STYLES = """<!DOCTYPE html><title>t</title>{meta}<style>.refused {{ display: none }}</style>
<style nonce="n">.allowed {{ color: red }}</style><p class="refused" style="display: none">shown
<p class="adopted">hidden
<script nonce="n">
  const sheet = new CSSStyleSheet(); sheet.replaceSync(".adopted {{ display: none }}");
  document.adoptedStyleSheets = [sheet];
</script>"""
_POLICY = "default-src 'none'; script-src 'nonce-n'; style-src 'nonce-n'"


async def test_the_styles_of_a_snapshot_are_those_that_its_policy_has_allowed(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    meta = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    html = {"content_type": "text/html", "headers": {"Content-Security-Policy": _POLICY}}
    site: dict[str, str | web.Response] = {
        "/meta": _STYLES.format(meta=meta),
        "/header": web.Response(text=_STYLES.format(meta=""), **html),  # type: ignore[arg-type]
        "/none": _STYLES.format(meta=""),
    }
    origin = await pages(start_origin, site)
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    for path in ("/meta", "/header"):
        reply = await proxy.crawl(path)
        assert "Content-Security-Policy" not in reply.headers
        assert ".refused {" not in reply.text
        assert '<p class="refused">shown' in reply.text
        assert ".allowed {" in reply.text
        assert ".adopted { display: none; }" in reply.text
    policy = (await proxy.crawl("/meta")).text.partition('content="')[2].partition('"')[0]
    assert policy == (
        "default-src 'none'; script-src 'nonce-n'; style-src * data: blob: 'unsafe-inline'"
    )
    ordinary = (await proxy.crawl("/none")).text
    assert ".refused {" in ordinary
    assert '<p class="refused" style="display: none">' in ordinary
