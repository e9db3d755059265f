import { parentOf } from "./elements.js";

// What no snapshot has: it only serves scripts, or asks crawlers for the ugly URL.
export const removed = [
  "noscript", 'meta[name="fragment" i]', 'link[rel~="modulepreload"]', 'link[rel~="import"]',
  'link[rel~="preload"][as="script"]', 'link[rel~="prefetch"][as="script"]',
];

// What [snapshot] remove names. All selectors are matched before anything is removed, so their order does not matter.
const never = new Set([document.documentElement, document.head, document.body]);
export const unwanted = new Set();
export const unwantedCopies = new Set();
export const findUnwanted = (original, from, to) => {
  const before = unwanted.size;
  for (const selector of options.remove) {
    for (const element of original.querySelectorAll(selector)) if (!never.has(element)) unwanted.add(element);
  }
  if (unwanted.size > before) from.forEach((element, i) => { if (unwanted.has(element)) unwantedCopies.add(to[i]); });
};
export const isUnwanted = (node) => {
  if (unwanted.size) for (let at = node; at; at = parentOf(at) ?? at.host) if (unwanted.has(at)) return true;
  return false;
};
