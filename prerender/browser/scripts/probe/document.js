import { seekHandlers } from "./animations.js";
import {
  call, countMutations, getEntriesByType, listen, matched, mutations, name, navigation, now, page, performance,
  querySelectorAll, URL,
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
    const [, seconds, url] = matched(REFRESH, meta.content) ?? [];
    if (!url || !URL.canParse(url, page.baseURI)) continue;
    const [path] = new URL(url, page.baseURI).href.split("#");
    if (path !== location.href.split("#")[0]) return loadedAt + +seconds * 1000;
  }
  return null;
};

// An error page that takes its visitors home after a while is one: only at once, as the 404.html of applications on
// static hosts does, it is a redirect.
const REDIRECT_MS = 1000;
const { preventDefault: prevent } = globalThis.Event.prototype;
const isError = () => {
  /** @type {any[]} */
  const [entry] = call(getEntriesByType, performance, ["navigation"]);
  return entry?.responseStatus >= 400;
};
const stay = (event) => {
  const isLate = loadedAt !== null && now() - loadedAt >= REDIRECT_MS;
  if (isLate && !event.destination.sameDocument && event.navigationType !== "reload" && isError()) {
    call(prevent, event, []);
  }
};
if (window === top) listen.call(navigation, "navigate", stay);

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
