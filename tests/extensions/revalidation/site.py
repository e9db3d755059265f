"""An origin whose page is made from many inputs, each of which a test can change."""

from collections import Counter

from aiohttp import web

PAGE = """<!doctype html><html lang="en"><head><title>Page DOCUMENT</title>
<meta name="description" content="about it"><link rel="stylesheet" href="/style.css">
<script src="/classic.js" defer></script><script type="module" src="/module.js"></script></head>
<body><div id="root"></div><iframe src="/frame"></iframe><img id="picture" src="/picture.svg">
<p class="styled"></p></body></html>"""
CLASSIC = "window.classic = 'CLASSIC';"
NESTED = "export const nested = 'NESTED';"
WORKER = """fetch('/data/worker').then(r => r.text()).then(text => postMessage('WORKER ' + text))"""
MODULE = """import {nested} from '/nested.js';
const said = {};
const show = (name, text) => {
  said[name] = text;
  const root = document.querySelector('#root');
  root.innerHTML = Object.keys(said).sort().map(key => `<p>${key}: ${said[key]}</p>`).join('');
};
const load = (name, url, options) => fetch(url, options).then(
  async r => show(name, `${r.status} ${r.url.split('/').pop()} ${await r.text()}`));
show('module', 'MODULE'); show('nested', nested); show('classic', window.classic);
const worker = new Worker('/worker.js');
// Ended, so that no render waits two seconds for more of it.
const spoken = new Promise(done => { worker.onmessage = e => {
  show('worker', e.data); worker.terminate(); done(); }; });
const sync = new XMLHttpRequest();
sync.open('GET', '/data/sync', false); sync.send(); show('sync', sync.responseText);
document.querySelector('#picture').decode().then(
  () => show('picture', document.querySelector('#picture').naturalWidth));
addEventListener('load', () => {
  show('frame', document.querySelector('iframe').contentDocument.body.textContent);
  const style = getComputedStyle(document.querySelector('.styled'));
  show('style', style.getPropertyValue('--own') + style.getPropertyValue('--imported'));
});
load('data', '/data/plain');
load('tagged', '/data/tagged');
load('language', '/data/language', {headers: {'X-Language': 'de'}});
load('moved', '/data/moved');
load('missing', '/data/missing');
load('cookie', '/data/cookie');
load('pieces', '/data/pieces');
fetch('/data/counted').then(r => show('counted', r.headers.get('X-Total-Count')));
await spoken;
"""
# Pages that depend on what no request shows.
BY_CHANCE = "<p id=p></p><script>p.textContent = crypto.randomUUID()</script>"
ASKS_BY_CHANCE = """<p id=p></p><script>
fetch('/data/plain?' + crypto.randomUUID()).then(r => r.text()).then(text => p.textContent = text)
</script>"""
# Every input, by its name in the versions.
INPUTS = (
    "document", "classic", "module", "nested", "style", "imported", "worker", "worker-data", "frame",
    "picture", "plain", "sync", "tagged", "language", "target", "redirect", "missing", "cookie",
    "set-cookie", "pieces", "header",
)  # fmt: skip


class Site:
    """``versions``: how often each input was changed. ``asked``: requests by path. ``numbered``: each
    response has a header with its number."""

    def __init__(self) -> None:
        self.versions: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.numbered = False

    def application(self) -> web.Application:
        """The origin."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        return application

    def text(self, name: str) -> str:
        """What the present version of an input says."""
        return f"{name} {self.versions[name]}"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked[request.path] += 1
        if request.path == "/data/pieces":
            response = web.StreamResponse(headers={"Content-Type": "text/plain"})
            await response.prepare(request)
            for part in ("it comes ", self.text("pieces")):
                await response.write(part.encode())
            await response.write_eof()
            return response
        response = self._made(request)
        if self.numbered:
            response.headers["X-Request-Id"] = str(self.asked.total())
        if response.status == 200 and request.path != "/page":
            counts = response.headers.get("X-Total-Count")
            etag = f'"{hash((response.body, counts))}"'
            response.headers["ETag"] = etag
            if request.headers.get("If-None-Match") == etag:
                return web.Response(status=304, headers={"ETag": etag})
        return response

    def _made(self, request: web.Request) -> web.Response:
        say = self.text
        path = request.path
        if path == "/data/missing":
            found = bool(self.versions["missing"] % 2)
            return web.Response(status=200 if found else 404, text=say("missing"))
        if path == "/data/moved":
            raise web.HTTPFound(f"/data/target{self.versions['redirect'] % 2}")
        texts = {
            "/data/worker": say("worker-data"),
            "/data/plain": say("plain"),
            "/data/sync": say("sync"),
            "/data/tagged": say("tagged"),
            "/data/language": f"{request.headers.get('X-Language')} {say('language')}",
            "/data/target0": say("target"),
            "/data/target1": say("target"),
            "/data/cookie": f"{request.headers.get('Cookie')} {say('cookie')}",
            "/data/counted": "none",
        }
        if path in texts:
            response = web.Response(text=texts[path])
            if path == "/data/counted":
                response.headers["X-Total-Count"] = say("header")
            if path == "/data/sync":
                response.headers["Vary"] = "Accept, Referer"
            return response
        files = {
            "/classic.js": CLASSIC.replace("CLASSIC", say("classic")),
            "/module.js": MODULE.replace("MODULE", say("module")),
            "/nested.js": NESTED.replace("NESTED", say("nested")),
            "/worker.js": WORKER.replace("WORKER", say("worker")),
            "/style.css": f"@import '/imported.css'; .styled {{ --own: {say('style')} }}",
            "/imported.css": f".styled {{ --imported: {say('imported')} }} /* {say('comment')} */",
        }
        if path in files:
            kind = "text/css" if path.endswith("css") else "text/javascript"
            return web.Response(text=files[path], content_type=kind)
        if path == "/picture.svg":
            width = 30 + self.versions["picture"]
            svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20"/>'
            return web.Response(text=svg, content_type="image/svg+xml")
        if path == "/frame":
            return web.Response(text=f"<p>{say('frame')}", content_type="text/html")
        if path == "/by-chance":
            page = ASKS_BY_CHANCE if request.query else BY_CHANCE
            return web.Response(text=page, content_type="text/html")
        page = PAGE.replace("DOCUMENT", say("document"))
        response = web.Response(text=page, content_type="text/html")
        response.set_cookie("visitor", f"v{self.versions['set-cookie']}")
        return response
