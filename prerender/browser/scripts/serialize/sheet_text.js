// ---- The rules of a style sheet as text. If a declaration sets a part of a shorthand that an earlier one has set with
// var(), Chromium's text lacks the values of the other parts: such a rule is written as its source has it, which is
// the text of the element, or what the probe has seen. A custom property may be empty.
export const lacksValue = /(?<![-\w])(?!--)([-a-z]+): ( !important)?;/g;
// What has no end takes the rest, so that each character is read once.
const tokens = /\/\*.*?(?:\*\/|$)|"(?:[^"\\]|\\.)*(?:"|$)|'(?:[^'\\]|\\.)*(?:'|$)|url\((?:[^"'\\)]|\\.)*\)?|\\.|[{};]/gs;

// Rules of ``css`` with functions: their text in Chromium -> their text in ``css``.
const sourcesIn = (css) => {
  const sources = new Map();
  const sheet = new CSSStyleSheet();
  let depth = 0, start = 0;
  for (const { 0: token, index } of css.matchAll(tokens)) {
    if (token === "{") depth++;
    if (token === "}") depth--;
    if (depth > 0 || !["}", ";"].includes(token)) continue;
    const source = css.slice(start, index + 1).trim();
    start = index + 1;
    depth = 0;
    if (!source.includes("(")) continue;
    // It must not swallow what follows.
    sheet.replaceSync(`${source}\nx{}`);
    if (sheet.cssRules.length === 2) sources.set(sheet.cssRules[0].cssText, source);
  }
  return sources;
};
let reported;
const reportedSources = () => new Map((sheets ?? []).filter((one) => typeof one === "string")
  .flatMap((source) => [...sourcesIn(source)]));

// Null if the sheet is of another origin.
export const sheetText = (sheet) => {
  let own;
  const ruleText = ({ cssText }) => {
    if (cssText.search(lacksValue) < 0) return cssText;
    own ??= sheet.ownerNode?.localName === "style" ? sourcesIn(sheet.ownerNode.textContent) : new Map();
    reported ??= reportedSources();
    return own.get(cssText) ?? reported.get(cssText) ?? cssText;
  };
  try { return Array.from(sheet.cssRules, ruleText).join("\n"); } catch { return null; }
};
