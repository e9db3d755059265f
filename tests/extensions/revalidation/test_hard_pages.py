"""Changes of what pages request in unusual ways are noticed."""

import pytest
from aiohttp import web

from tests.conftest import StartOrigin
from tests.extensions.revalidation.asking import asking
from tests.support.browsers import Browsers
from tests.support.sampling import sampled

SHOW = (
    "const show = text => { document.querySelector('p').textContent = String(text).slice(0, 99); };"
)
SHARED = """onconnect = e => fetch('/data').then(r => r.text())
  .then(text => e.ports[0].postMessage(text))"""
SCRIPTS = "".join(f"<script src=/many{n}.js></script>" for n in range(30))
# What the page does; it shows the data.
PAGES = {
    "large": "fetch('/data?large').then(r => r.json()).then(r => show(r.text + r.rest.length))",
    "language": """fetch('/data', {headers: {'Accept-Language': 'fr'}})
      .then(r => r.text()).then(show)""",
    "range": """fetch('/data', {headers: {Range: 'bytes=0-30'}}).then(r => r.text()).then(show)""",
    "pieces": """fetch('/data?pieces').then(async r => {
      const reader = r.body.getReader(); let all = '';
      for (;;) {
        const {value, done} = await reader.read();
        if (done) break;
        all += new TextDecoder().decode(value);
      }
      show(all); })""",
    "event-stream": """fetch('/data?events').then(r => r.text()).then(show)""",
    "script-cookie": "document.cookie = 'kind=blue'; fetch('/data').then(r => r.text()).then(show)",
    "head": """fetch('/data', {method: 'HEAD'}).then(r => show(r.headers.get('X-Version')))""",
    "no-store": """fetch('/data', {cache: 'no-store'}).then(r => r.text()).then(show)""",
    "json-module": """import('/data?json', {with: {type: 'json'}}).then(m => show(m.default.text))""",
    "import-scripts": """new Worker(URL.createObjectURL(new Blob(
      [`importScripts('${location.origin}/many17.js'); postMessage(many17)`]))).onmessage
      = e => show(e.data)""",
    "shared-worker": """new SharedWorker('/shared.js').port.onmessage = e => show(e.data)""",
    "srcdoc": """const f = document.createElement('iframe'); f.srcdoc = `<script>fetch('/data')
      .then(r => r.text()).then(t => parent.show(t))</` + 'script>'; document.body.append(f);
      window.show = show""",
    "scripts": "show(Array.from({length: 30}, (_, n) => window['many' + n]).join(' '))",
}


class Site:
    """``version`` of the data of its pages."""

    def __init__(self) -> None:
        self.version = 0

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/{path:.*}", self._answer)
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        name = request.path[1:]
        if name == "shared.js":
            return web.Response(text=SHARED, content_type="text/javascript")
        if name.startswith("many"):
            value = self.version if name == "many17.js" else 0
            return web.Response(text=f"{name[:-3]} = {value}", content_type="text/javascript")
        if name != "data":
            scripts = SCRIPTS if name == "scripts" else ""
            page = f"<title>a</title><p></p>{scripts}<script>{SHOW}{PAGES[name]}</script>"
            return web.Response(text=page, content_type="text/html")
        headers = {"Accept-Language", "Cookie"} & request.headers.keys()
        text = " ".join([f"{self.version}", *(request.headers[one] for one in sorted(headers))])
        if "json" in request.query:
            return web.json_response({"text": text})
        if "large" in request.query:
            return web.json_response({"text": text, "rest": "x" * 30_000_000})
        if "Range" in request.headers:
            part = {"Content-Range": f"bytes 0-{len(text) - 1}/9999", "Vary": "Range"}
            return web.Response(status=206, text=text, headers=part)
        if not request.query:
            return web.Response(text=text, headers={"X-Version": str(self.version)})
        kind = "text/event-stream" if "events" in request.query else "text/plain"
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        for piece in ("data: ", text, "\n\n"):
            await response.write(piece.encode())
        await response.write_eof()
        return response


@pytest.mark.parametrize("name", sampled(list(PAGES), 5))
async def test_a_change_is_noticed(
    name: str, start_origin: StartOrigin, browsers: Browsers
) -> None:
    site = Site()
    async with asking(await start_origin(site.application()), browsers) as asker:
        kept = await asker.render(f"/{name}")
        assert b"<p></p>" not in kept.snapshot.body
        if name == "event-stream":
            assert kept.snapshot.unrenewable.startswith("stream ")
            return
        assert (await asker.ask(kept)).result == "same"
        site.version += 1
        asker.forget_assets()
        assert (await asker.ask(kept)).result in ("changed", "headers")
