// ---- Style sheets that scripts may have changed. What they say then is in no text of the page; and what a
// linked one said before is not to be had afterwards. All ways to change one begin with these.
const touchedSheets = newMap(); // sheet -> the rules of a linked one before it was touched, or null
const rulesOf = Object.getOwnPropertyDescriptor(prototypeOf("CSSStyleSheet"), "cssRules").get;
const { from: listed } = Array;
const sheetText = (sheet) => listed(call(rulesOf, sheet, []), (rule) => rule.cssText).join("\n");
const touch = (sheet) => {
  let top = sheet;
  while (top?.parentStyleSheet) top = top.parentStyleSheet;
  if (!top?.ownerNode || touchedSheets.has(top)) return;
  const isLinked = top.ownerNode.localName === "link";
  try { touchedSheets.set(top, isLinked ? sheetText(top) : null); } catch { /* another site's */ }
};
for (const method of ["insertRule", "deleteRule", "addRule", "removeRule"]) {
  patch(prototypeOf("CSSStyleSheet"), method, (original) => function (...given) {
    touch(this);
    return call(original, this, given);
  });
}
for (const property of ["cssRules", "rules"]) {
  hide(prototypeOf("CSSStyleSheet"), property, (rules, sheet) => { touch(sheet); return rules; });
}
// [place in document.styleSheets, rules in force] of linked sheets that say something else now, and
// [place, null] of others that may.
const restyled = () => {
  const found = [];
  listed(document.styleSheets).forEach((sheet, place) => {
    if (!touchedSheets.has(sheet)) return;
    const before = touchedSheets.get(sheet);
    const text = before === null ? null : sheetText(sheet);
    if (text === null || text !== before) found[found.length] = [place, text];
  });
  return found;
};
