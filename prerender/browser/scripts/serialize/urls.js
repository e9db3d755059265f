import { attributesOf, localNameOf, on } from "./elements.js";
import { forEachTemplate } from "./parsing.js";
import { prettyReference, TOKEN } from "./pretty.js";

// ---- The URLs of a page that are converted to pretty ones (docs/scheme.md gives the reasons).
// The URL attributes of the HTML Standard ("Attributes" in its index), its obsolete ones, SVG's, and RDFa's.
const urlAttributes = new Set([
  "action", "background", "cite", "data", "formaction", "href", "itemid", "longdesc", "manifest", "poster",
  "profile", "src", "xlink:href", "about", "resource",
]);
const urlListAttributes = new Set(["imagesrcset", "ping", "srcset"]);
const refresh = /^(\s*\d+(?:\.\d*)?\s*[;,]\s*(?:url\s*=\s*)?(["']?))(.*?)(\2)\s*$/is;

// Other data blocks are for scripts: crawlers do not read them, and frameworks put megabytes there.
export const dataScript = /^\s*application\/ld\+json\s*(;|$)/i;

const prettyHere = (reference) =>
  prettyReference(reference, document.baseURI, [location.hostname, options.internalHost]);
// Elsewhere, only a value that is entirely a URL is converted: a sentence with a URL stays.
const prettyWhole = (text) => (/\s/.test(text.trim()) ? text : prettyHere(text));

const prettyAttribute = (element, name, value) => {
  if (urlAttributes.has(name)) return prettyHere(value);
  if (urlListAttributes.has(name)) return value.replace(/[^\s,](?:\S*[^\s,])?/g, prettyHere);
  if (name === "content" && /^refresh$/i.test(on(element, "getAttribute", "http-equiv"))) {
    return value.replace(refresh, (_, before, quote, url) => before + prettyHere(url) + quote);
  }
  return name === "content" || name.startsWith("data-") ? prettyWhole(value) : value;
};

const prettyJson = (text) => text.replace(/"(?:[^"\\]|\\.)*"/gs, (literal) => {
  let value;
  try { value = JSON.parse(literal); } catch { return literal; }
  const pretty = prettyWhole(value);
  // Characters that were escaped so that they do not end the element stay escaped.
  return pretty === value ? literal : JSON.stringify(pretty).replaceAll("<", "\\u003c");
});

export const prettify = (copy) => {
  forEachTemplate(copy, prettify);
  for (const element of copy.querySelectorAll("*")) {
    if (localNameOf(element) === "script" && dataScript.test(element.type)) {
      element.textContent = prettyJson(element.textContent);
    }
    for (const attribute of attributesOf(element)) {
      const { name, value } = attribute;
      if (value.includes(TOKEN)) attribute.value = prettyAttribute(element, name, value);
    }
  }
};
