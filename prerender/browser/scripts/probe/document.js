// ---- The document itself. It is parsed when the scripts that it names have run, but those of their own time.
let parsed = document.readyState === "complete";
listen.call(globalThis, "DOMContentLoaded", () => { parsed = true; }, true);
const count = new MutationObserver((records) => { mutations += records.length; });
count.observe(document, { childList: true, characterData: true, subtree: true });

// When a refresh of the document takes the visitor elsewhere (HTML, section 4.2.5.3): its time begins when the
// document has been loaded. A reload brings nothing new.
const REFRESH = /^\s*(\d+)[.\d]*\s*[;,]?\s*(?:url\s*=\s*)?["']?([^"']*)/i;
// Chromium runs this script in a page without any other only when something of it is asked for.
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

// Frames of the same origin are part of the page; others cannot be asked.
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

// A window that has been to one page only may close itself. This one is not a visitor's.
if (globalThis === top) patch(globalThis, "close", () => () => {});
