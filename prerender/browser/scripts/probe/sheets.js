// ---- Linked style sheets that scripts change: what they say is in no text of the page, and what they said
// before is not to be had afterwards. All ways to change one begin with these.
const linkedSheets = newMap(); // sheet -> its rules before it was touched
const rulesOf = Object.getOwnPropertyDescriptor(prototypeOf("CSSStyleSheet"), "cssRules").get;
const { from: listed } = Array;
const sheetText = (sheet) => listed(call(rulesOf, sheet, []), (rule) => rule.cssText).join("\n");
const touch = (sheet) => {
  let top = sheet;
  while (top?.parentStyleSheet) top = top.parentStyleSheet;
  if (top?.ownerNode?.localName !== "link" || linkedSheets.has(top)) return;
  try { linkedSheets.set(top, sheetText(top)); } catch { /* of another site: nobody can change it */ }
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
// [place in document.styleSheets, rules in force] of those that say something else now.
const restyled = () => {
  const found = [];
  listed(document.styleSheets).forEach((sheet, place) => {
    if (!linkedSheets.has(sheet)) return;
    const text = sheetText(sheet);
    if (text !== linkedSheets.get(sheet)) found[found.length] = [place, text];
  });
  return found;
};
