"""Pages that take more than their share, each in one way. MEMORY_BOMBS take gigabytes."""

_PAGE = "<!DOCTYPE html><title>Hostile</title><body><p>hostile<script>{}</script>"
_WORKER = "const work = (code) => new Worker(URL.createObjectURL(new Blob([code])));"
_FILL = "const kept = []; for (;;) try { kept.push(new Uint8Array(1e7).fill(1)) } catch {}"


def _page(script: str) -> str:
    return _PAGE.format(script)


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
