import { seekHandlers } from "./animations.js";
import {
  call, countMutations, listen, mutations, name, now, page, querySelectorAll, URL,
} from "./core.js";

// ---- The document. It is parsed when its scripts have run, except asynchronous ones.
export let parsed = page.readyState === "complete";
listen.call(globalThis, "DOMContentLoaded", () => { parsed = true; seekHandlers(); }, true);
const count = new MutationObserver((records) => countMutations(records.length));
const { observe: observeMutations, takeRecords } = MutationObserver.prototype;
// A document or a shadow root: a change within the latter is none of its host.
export const observeRoot = (root) => {
  call(observeMutations, count, [root, { childList: true, characterData: true, subtree: true }]);
};
observeRoot(document);
export const countPendingMutations = () => countMutations(call(takeRecords, count, []).length);
export let mutationsAtMessage = 0;
export const noteMessage = () => { countPendingMutations(); mutationsAtMessage = mutations; };

// When a refresh navigates to another page (HTML, section 4.2.5.3). Its time begins when the document has been
// loaded. Reloads are ignored.
const REFRESH = /^\s*(\d+)[.\d]*\s*[;,]?\s*(?:url\s*=\s*)?["']?([^"']*)/i;
// In a page without scripts, Chromium runs this one only on demand.
let loadedAt = page.readyState === "complete" ? now() : null;
listen.call(globalThis, "load", () => { loadedAt = now(); });
export const refreshDue = () => {
  if (window !== top || loadedAt === null) return null;
  /** @type {NodeListOf<HTMLMetaElement>} */
  const metas = call(querySelectorAll, document, ['meta[http-equiv="refresh" i]']);
  for (const meta of metas) {
    const [, seconds, url] = REFRESH.exec(meta.content) ?? [];
    if (!url || !URL.canParse(url, page.baseURI)) continue;
    const [path] = new URL(url, page.baseURI).href.split("#");
    if (path !== location.href.split("#")[0]) return loadedAt + +seconds * 1000;
  }
  return null;
};

// Frames of the same origin are part of the page; others cannot be queried.
export let foreign = 0;
export const forEachFrame = (visit) => {
  foreign = 0;
  for (let i = 0; i < page.length; i++) {
    try {
      const probe = globalThis[i][name];
      if (probe) visit(probe);
    } catch {
      foreign++;
    }
  }
};
