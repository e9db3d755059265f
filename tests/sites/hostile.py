"""Pages that use more than their share, each in one way.

GREEDY pages use CPU time, the browser, its network, or the proxy; MEMORY_BOMBS allocate gigabytes.
Their origin sends a few bytes at every other path.
"""

_PAGE = "<!DOCTYPE html><title>Hostile</title><body><p>hostile<script>{}</script>"
_WORKER = "const work = (code) => new Worker(URL.createObjectURL(new Blob([code])));"
_FILL = "const kept = []; for (;;) try { kept.push(new Uint8Array(1e7).fill(1)) } catch {}"


def _page(script: str) -> str:
    return _PAGE.format(script)


_FRAME = "const f = document.createElement('iframe');"

GREEDY = {
    # The browser's own process.
    "push-state-loop": _page("for (let i = 0;; i++) history.pushState(i, '', '#' + i)"),
    "replace-state-loop": _page("for (let i = 0;; i++) history.replaceState(i, '', '#' + i)"),
    "hash-loop": _page("for (let i = 0;; i++) location.hash = i"),
    "history-loop": _page(
        "for (let i = 0; i < 50; i++) history.pushState(i, '', '?' + i);"
        " setInterval(() => { history.back(); history.forward() })"
    ),
    "reload-loop": _page("setInterval(() => location.reload())"),
    "frames-5000": _page("document.body.innerHTML += '<iframe></iframe>'.repeat(5000)"),
    "frames-recursive": _page(
        f"for (let i = 0; i < 4; i++) {{ {_FRAME} f.src = location.pathname + '?' + Math.random();"
        " document.body.append(f) }"
    ),
    "frames-added-and-removed": _page(
        f"setInterval(() => {{ for (let i = 0; i < 20; i++) {{ {_FRAME}"
        " document.body.append(f); f.remove() } })"
    ),
    "frames-of-blobs": _page(
        f"for (let i = 0; i < 130; i++) {{ {_FRAME} f.src = URL.createObjectURL(new Blob("
        "['<p>x<script>setInterval(() => document.body.append(1), 1)<' + '/script>'],"
        " { type: 'text/html' })); document.body.append(f) }"
    ),
    "frames-of-srcdoc": _page(
        f"for (let i = 0; i < 130; i++) {{ {_FRAME} f.srcdoc ="
        " '<p>x<script>setInterval(() => document.body.append(1), 1)<' + '/script>';"
        " document.body.append(f) }"
    ),
    "windows": _page("setInterval(() => { for (let i = 0; i < 50; i++) open('/small?' + i) })"),
    "dialogs": _page("for (let i = 0; i < 1000; i++) { alert(i); confirm(i); prompt(i) }"),
    "console": _page("for (;;) console.log('x'.repeat(1000))"),
    "broadcasts": _page(
        "const a = new BroadcastChannel('x'), b = new BroadcastChannel('x'), m = 'x'.repeat(1e4);"
        " a.onmessage = () => { b.postMessage(m); b.postMessage(m) };"
        " b.onmessage = () => a.postMessage(m); a.postMessage(m)"
    ),
    "cookies": _page("for (let i = 0;; i++) document.cookie = `a${i % 100}=${'x'.repeat(3000)}`"),
    "questions": _page(
        "setInterval(() => { for (let i = 0; i < 1000; i++) { navigator.storage.estimate();"
        " navigator.permissions.query({ name: 'geolocation' }); navigator.storage.getDirectory();"
        " navigator.locks.request('x', () => 1) } })"
    ),
    "permissions": _page(
        "setInterval(() => { for (let i = 0; i < 1000; i++) { Notification.requestPermission();"
        " navigator.geolocation.watchPosition(() => {}); navigator.mediaDevices.enumerateDevices();"
        " navigator.clipboard.writeText('x').catch(() => {}) } })"
    ),
    "fullscreen": _page(
        "setInterval(() => { for (let i = 0; i < 1000; i++) { document.body.requestPointerLock();"
        " document.body.requestFullscreen().catch(() => {}) } })"
    ),
    "service-workers": _page(
        "let i = 0; setInterval(() => { for (let k = 0; k < 20; k++) {"
        " navigator.serviceWorker.register(`/x.js?${i}`, { scope: `/${i++}` }).catch(() => {}) } })"
    ),
    "titles": _page("for (let i = 0;; i++) document.title = i"),
    # The network, and the proxy.
    "requests-10000": _page("for (let i = 0; i < 10000; i++) fetch('/data?' + i).catch(() => {})"),
    "requests-of-a-worker": _page(
        f"{_WORKER} work(`setInterval(() => {{ for (let i = 0; i < 100; i++)"
        " fetch('${location.origin}/data?' + Math.random()).catch(() => {}) })`)"
    ),
    "sockets": _page(
        "setInterval(() => { for (let i = 0; i < 50; i++) new WebSocket('ws://' + location.host) })"
    ),
    # The CPUs.
    "endless-script": _page("for (;;);"),
    "endless-script-in-a-frame": _page(
        f"{_FRAME} f.srcdoc = '<script>setTimeout(() => {{ for (;;); }}, 5)<' + '/script>';"
        " document.body.append(f)"
    ),
    "endless-getter": _page(
        "Object.defineProperty(window, 'prerenderReady', { get() { for (;;); } })"
    ),
    "workers-20": _page(f"{_WORKER} for (let i = 0; i < 20; i++) work('for (;;);')"),
    "workers-200": _page(f"{_WORKER} for (let i = 0; i < 200; i++) work('for (;;);')"),
    "workers-that-speak": _page(
        f"{_WORKER} for (let i = 0; i < 200; i++) work('setInterval(() => {{ const t = Date.now() + 50;"
        " while (Date.now() < t); postMessage(1) })')"
    ),
    "shared-workers": _page(
        "for (let i = 0; i < 50; i++)"
        " new SharedWorker(URL.createObjectURL(new Blob(['for (;;);'])), String(i))"
    ),
    "worklet": _page(
        "new OfflineAudioContext(1, 44100, 44100).audioWorklet.addModule("
        "URL.createObjectURL(new Blob(['for (;;);'], { type: 'text/javascript' })))"
    ),
    "regular-expression": _page("/^(a+)+$/.test('a'.repeat(40) + 'b')"),
    "mutations": _page(
        "(function more() { for (let i = 0; i < 2000; i++) document.body.append("
        "document.createElement('p')); if (document.body.childNodes.length > 20000)"
        " document.body.textContent = ''; setTimeout(more) })()"
    ),
    "mutation-observer": _page(
        "new MutationObserver(() => document.body.append('x')).observe(document.body,"
        " { childList: true }); document.body.append('x')"
    ),
    "resize-observer": _page(
        "let n = 0; new ResizeObserver(() => { if (n++ > 2) for (;;); }).observe(document.body);"
        " setInterval(() => document.body.append('x'), 50)"
    ),
    "animation-frame": _page(
        "let n = 0; (function next() { if (n++ > 5) for (;;); requestAnimationFrame(next) })()"
    ),
    "messages": _page(
        "onmessage = () => { postMessage('x'.repeat(1e4), '*') };"
        " for (let i = 0; i < 1000; i++) postMessage(1, '*')"
    ),
    "timers": _page("(function more() { setTimeout(more); setTimeout(more) })()"),
    "layout": _page(
        "document.body.innerHTML = '<div style=\"float: left\">x</div>'.repeat(20000);"
        " setInterval(() => { for (let i = 0; i < 200; i++) { document.body.style.width ="
        " 500 + i + 'px'; document.body.offsetHeight } })"
    ),
    "canvas": _page(
        "setInterval(() => { for (let i = 0; i < 20; i++) { const e = document.createElement('canvas');"
        " e.width = e.height = 2000; e.getContext('2d').fillRect(0, 0, 2000, 2000); e.toDataURL() } })"
    ),
    "elements-million": _page("document.body.innerHTML = '<div><p>text</p></div>'.repeat(5e5)"),
    "elements-deep": _page(
        "let at = document.body; for (let i = 0; i < 2e5; i++) {"
        " const e = document.createElement('div'); at.append(e); at = e }"
    ),
}

MEMORY_BOMBS = {
    "arrays": _page(_FILL),
    "arrays-in-a-worker": _page(f"{_WORKER} work('{_FILL}')"),
    "arrays-in-8-workers": _page(f"{_WORKER} for (let i = 0; i < 8; i++) work('{_FILL}')"),
    "objects": _page("const kept = []; for (let i = 0;; i++) kept.push({ i, list: [i, i] })"),
    "elements": _page(
        "for (;;) { const e = document.createElement('div');"
        " e.innerHTML = '<p class=x>text</p>'.repeat(10000); document.body.append(e) }"
    ),
    "canvases": _page(
        "const kept = []; for (;;) { const e = document.createElement('canvas');"
        " e.width = e.height = 4000; const to = e.getContext('2d'); to.fillRect(0, 0, 4000, 4000);"
        " to.getImageData(0, 0, 1, 1); kept.push(e) }"
    ),
    "bitmaps": _page(
        "const kept = []; for (;;) { const canvas = new OffscreenCanvas(4000, 4000);"
        " canvas.getContext('2d').fillRect(0, 0, 4000, 4000);"
        " kept.push(canvas.transferToImageBitmap()) }"
    ),
    "wasm": _page(
        "const kept = []; for (;;) try { const m = new WebAssembly.Memory({ initial: 1000 });"
        " new Uint8Array(m.buffer).fill(1); kept.push(m) } catch {}"
    ),
    "blobs": _page(
        "const part = new Uint8Array(1e7).fill(1), kept = [];"
        " (function more() { for (let i = 0; i < 20; i++) kept.push(new Blob([part]));"
        " setTimeout(more) })()"
    ),
    "messages": _page(
        "const channel = new MessageChannel, part = new Uint8Array(1e7).fill(1);"
        " for (;;) channel.port1.postMessage(part)"
    ),
    "database": _page(
        "const part = new Uint8Array(1e7).fill(1), opening = indexedDB.open('x');"
        " opening.onupgradeneeded = () => opening.result.createObjectStore('s', "
        "{ autoIncrement: true }); opening.onsuccess = function more() {"
        " const t = opening.result.transaction('s', 'readwrite');"
        " for (let i = 0; i < 10; i++) t.objectStore('s').add(part); t.oncomplete = more }"
    ),
    "cache": _page(
        "(async () => { const part = new Uint8Array(1e7).fill(1), cache = await caches.open('x');"
        " for (let i = 0;; i++) await cache.put('/' + i, new Response(part)) })()"
    ),
}
