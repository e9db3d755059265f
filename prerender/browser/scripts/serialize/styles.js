import { ownReference, resolved } from "./pretty.js";
import { sheetText } from "./sheet_text.js";
import { dependsOnState, hasStates, namedStates, withStates } from "./state.js";
import { unwantedCopies } from "./unwanted.js";

// ---- Current styles. Scripts can modify a style sheet without changing any text of the page (CSSOM), so the current
// rules are compared with those that a browser would parse from the text.
export const inert = document.implementation.createHTMLDocument("");

// A string in a rule must not end the element.
const asContent = (css) => css.replace(/<(?=\/style)/gi, "\\3c ");

// The owners of sheets that scripts have modified, as reported by the probe. Without its report, all may be modified.
const touched = new Set((sheets ?? []).map((place) => document.styleSheets[Number(place)]?.ownerNode));
// The probe tracks the document's sheets; reading rules without need costs too much.
const mayDiffer = (style) =>
  sheets === null || touched.has(style) || style.getRootNode() !== document;

const parsed = inert.createElement("style");
inert.head.append(parsed);
// A browser may serialize a rule differently, so the original text stays if it is equivalent.
export const styleText = (style) => {
  const rules = style.sheet && mayDiffer(style) ? sheetText(style.sheet) : null;
  if (rules === null) return null;
  parsed.textContent = style.textContent;
  return sheetText(parsed.sheet) === rules ? null : asContent(rules);
};

const styleOf = (css, sheet) => {
  const style = inert.createElement("style");
  const { mediaText } = sheet.media;
  if (mediaText) style.setAttribute("media", mediaText);
  style.textContent = asContent(css);
  return style;
};

// URLs in a linked sheet are relative to it. In custom properties they are as the author wrote them. Strings come first:
// what is in them is no URL.
const urlsAndStrings = new RegExp([
  /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/,
  /(?<![\w-])url\(\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|((?:[^"'\\)\s]|\\.)+))\s*\)/,
].map(({ source }) => source).join("|"), "gis");
const moved = (css, base, newBase) => css.replace(urlsAndStrings, (whole, ...forms) => {
  const reference = forms.slice(0, 3).find((form) => form !== undefined);
  const url = reference === undefined || reference.startsWith("#") ? null : resolved(reference, base);
  return url ? `url("${ownReference(url.href, newBase)}")` : whole;
});

// An alternative sheet that a script has enabled looks like any other: only a test rule shows whether it applies.
const applies = (sheet) => {
  const place = sheet.cssRules.length;
  sheet.insertRule(":root { --prerender-applies: 1 }", place);
  const found = getComputedStyle(document.documentElement).getPropertyValue("--prerender-applies");
  sheet.deleteRule(place);
  return found !== "";
};
const isSwitchedOn = (link) => {
  if (!link.title || !link.relList?.contains("alternate")) return false;
  try { return applies(link.sheet); } catch { return false; /* of another origin */ }
};

// A script may also have decided whether a sheet applies.
export const copySheetState = (from, to) => {
  const { sheet } = from;
  if (!sheet) return;
  const { mediaText } = sheet.media;
  if (matchMedia(from.media || "all").media !== (mediaText || "all")) to.setAttribute("media", mediaText);
  if (sheet.disabled) to.setAttribute("media", "not all");
  if (isSwitchedOn(from)) {
    to.setAttribute("rel", "stylesheet");
    to.removeAttribute("title");
  }
  if (from.localName !== "link" || sheet.disabled || unwantedCopies.has(to)) return;
  if (!touched.has(from) && !hasStates && !namedStates.length) return;
  const rules = sheetText(sheet);
  if (rules === null || !(touched.has(from) || dependsOnState(rules))) return;
  to.replaceWith(styleOf(withStates(moved(rules, from.href, from.baseURI)), sheet));
};

export const adopted = (root) => {
  const inForce = Array.from(root.adoptedStyleSheets ?? []).filter((sheet) => !sheet.disabled);
  const groups = inForce.map((sheet) => {
    const text = sheetText(sheet);
    return text && sheet.media.mediaText ? `@media ${sheet.media.mediaText} {\n${text}\n}` : text;
  });
  const text = groups.filter(Boolean).join("\n");
  if (!text) return null;
  const style = inert.createElement("style");
  style.textContent = withStates(asContent(text));
  return style;
};
