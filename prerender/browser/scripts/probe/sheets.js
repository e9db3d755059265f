import { call, matched, newMap, newSet, page, patch, prototypeOf, querySelectorAll } from "./core.js";
import { hide } from "./shadow.js";

// ---- Style sheets that scripts may have modified. Their rules are then in no text of the page, and the original
// rules of a linked sheet are lost. Every modification begins with one of these calls.
export const touchedSheets = newMap(); // sheet -> rules of a linked one before the first modification, or null
const { CSSStyleSheet } = globalThis;
const { replaceSync } = CSSStyleSheet.prototype;
const rulesOf = Object.getOwnPropertyDescriptor(CSSStyleSheet.prototype, "cssRules").get;
const { from: listed } = Array;
const sheetText = (sheet) => listed(call(rulesOf, sheet, []), (rule) => rule.cssText).join("\n");
const touch = (sheet) => {
  let top = sheet;
  while (top?.parentStyleSheet) top = top.parentStyleSheet;
  if (!top?.ownerNode || touchedSheets.has(top)) return;
  const isLinked = top.ownerNode.localName === "link";
  try { touchedSheets.set(top, isLinked ? sheetText(top) : null); } catch { /* of another site */ }
};
// What scripts have given as rules, if it calls a function: of a shorthand with var() of which a later declaration sets
// a part, Chromium has no text for the other parts.
export const ruleSources = newSet();
for (const method of ["insertRule", "deleteRule", "addRule", "removeRule", "replace", "replaceSync"]) {
  patch(prototypeOf("CSSStyleSheet"), method, (original) => function (...given) {
    touch(this);
    if (typeof given[0] === "string" && matched(/\(/, given[0])) ruleSources.add(given[0]);
    return call(original, this, given);
  });
}
for (const property of ["cssRules", "rules"]) {
  hide(prototypeOf("CSSStyleSheet"), property, (rules, sheet) => { touch(sheet); return rules; });
}
// Which of the style attributes the policy refuses: indexes in document.querySelectorAll("[style]"). A policy does not
// apply to other worlds, where they seem to be in force.
export const refusedStyles = () => {
  const found = [];
  /** @type {NodeListOf<HTMLElement>} */
  const styled = call(querySelectorAll, document, ["[style]"]);
  styled.forEach((element, place) => {
    if (element.style?.length === 0) found[found.length] = place;
  });
  return found;
};
const lacksValue = (text) => matched(/: (?: !important)?;/, text);
const reads = (source) => {
  const sheet = new CSSStyleSheet();
  call(replaceSync, sheet, [source]);
  return sheetText(sheet);
};
// The indexes in document.styleSheets of linked sheets that have changed, and of others that may have; and the sources of
// rules whose text lacks values.
export const restyled = () => {
  const found = [];
  listed(page.styleSheets).forEach((sheet, place) => {
    if (!touchedSheets.has(sheet)) return;
    const before = touchedSheets.get(sheet);
    const text = before === null ? null : sheetText(sheet);
    if (text === null || text !== before) found[found.length] = place;
  });
  ruleSources.forEach((source) => { if (lacksValue(reads(source))) found[found.length] = source; });
  return found;
};
