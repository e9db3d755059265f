import { seekHandlers } from "./animations.js";
import {
  call, countMutations, getEntriesByType, listen, matched, mutations, name, navigation, newWeakSet, now, page, patch,
  performance, prototypeOf, querySelectorAll, setTimeout, URL,
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
let loadedAt = null;
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
// static hosts does, it is a redirect. One that loads itself again, also past caches, may be a page by then.
const REDIRECT_MS = 1000;
const WITHOUT_TIME = /^([^#]*?)(?:[?&](?:[^=&#]*=)?1\d{9}(?:\d{3})?)?(?:#|$)/;
const { preventDefault: prevent } = globalThis.Event.prototype;
const intercepted = newWeakSet();
const stay = (event) => {
  const { destination } = event;
  const [, other] = matched(WITHOUT_TIME, destination.url) ?? [];
  const [, own] = matched(WITHOUT_TIME, location.href) ?? [];
  if (other !== own && !destination.sameDocument && !intercepted.has(event)) call(prevent, event, []);
};
// Only now, because the listeners of the page's router come first: no other one can intercept what is prevented.
const watchNavigations = () => {
  /** @type {any[]} */
  const [entry] = call(getEntriesByType, performance, ["navigation"]);
  if (!(entry?.responseStatus >= 400)) return;
  patch(prototypeOf("NavigateEvent"), "intercept", (intercept) => function (...options) {
    call(intercept, this, options);
    intercepted.add(this);
  });
  listen.call(navigation, "navigate", stay);
};
const loaded = () => {
  loadedAt = now();
  if (window === top) setTimeout(watchNavigations, REDIRECT_MS);
};
// In a page without scripts, Chromium runs this one only on demand.
if (page.readyState === "complete") loaded();
else listen.call(globalThis, "load", loaded);

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
