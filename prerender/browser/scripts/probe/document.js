// ---- The document. It is parsed when its scripts have run, except asynchronous ones.
let parsed = document.readyState === "complete";
listen.call(globalThis, "DOMContentLoaded", () => { parsed = true; seekHandlers(); }, true);
const count = new MutationObserver((records) => { mutations += records.length; });
count.observe(document, { childList: true, characterData: true, subtree: true });

// When a refresh navigates to another page (HTML, section 4.2.5.3). Its time begins when the document has been
// loaded. Reloads are ignored.
const REFRESH = /^\s*(\d+)[.\d]*\s*[;,]?\s*(?:url\s*=\s*)?["']?([^"']*)/i;
// In a page without scripts, Chromium runs this one only on demand.
let loadedAt = document.readyState === "complete" ? now() : null;
listen.call(globalThis, "load", () => { loadedAt = now(); });
const refreshDue = () => {
  if (globalThis !== top || loadedAt === null) return null;
  for (const meta of document.querySelectorAll('meta[http-equiv="refresh" i]')) {
    const [, seconds, url] = REFRESH.exec(meta.content) ?? [];
    if (!url || !URL.canParse(url, document.baseURI)) continue;
    const [path] = new URL(url, document.baseURI).href.split("#");
    if (path !== location.href.split("#")[0]) return loadedAt + seconds * 1000;
  }
  return null;
};

// Frames of the same origin are part of the page; others cannot be queried.
let foreign = 0;
const forEachFrame = (visit) => {
  foreign = 0;
  for (let i = 0; i < globalThis.length; i++) {
    try {
      const probe = globalThis[i][name];
      if (probe) visit(probe);
    } catch {
      foreign++;
    }
  }
};
