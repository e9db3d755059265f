import { inlineStyleOf, localNameOf, on, shadowRootOf } from "./elements.js";
import { asParsed, asText, forEachTemplate, separateHead } from "./parsing.js";
import { dataOf, drawingOf, drawn, hasDrawings, withData } from "./pictures.js";
import { ownReference, TOKEN } from "./pretty.js";
import {
  addMark, animated, copyAnimated, dependsOnState, isAddress, markStates, shadowRoots, withStates,
} from "./state.js";
import { lacksValue } from "./sheet_text.js";
import { adopted, copySheetState, inert, styleText } from "./styles.js";
import { findUnwanted, isUnwanted, removed, unwanted, unwantedCopies } from "./unwanted.js";
import { dataScript, prettify } from "./urls.js";

// ---- The page as HTML text, with its metadata. Works on an inert copy, so that no code of the page runs.
const keep = "[data-prerender-keep]";
// Names of metadata are ASCII case-insensitive (HTML, section 4.2.5.1).
const ownMetas = 'meta[name="prerender-status-code" i], meta[name="prerender-header" i], ' +
  'meta[name="prerender-cache-ttl" i], meta[name="prerender-cache-tags" i], ' +
  'meta[name="render:status_code" i], meta[name="render:header" i]';
// An AMP page is valid only with AMP's scripts and its noscript.
const isAmp = ["amp", "\u26a1"].some((name) => document.documentElement?.hasAttribute(name));
const ampScript = 'script[src^="https://cdn.ampproject.org/"], noscript';

const stays = (element) => element.matches(keep) || (isAmp && element.matches(ampScript));

const setAttribute = (element, name, isSet) => {
  if (isSet) element.setAttribute(name, ""); else element.removeAttribute(name);
};

const copyState = (from, to) => {
  // A browser hides a popover that no script has opened.
  if (on(from, "hasAttribute", "popover") && on(from, "matches", ":popover-open")) {
    inlineStyleOf(to).setProperty("display", getComputedStyle(from).display, "important");
  }
  switch (localNameOf(from)) {
    case "style": {
      if (isRefused(from)) { to.textContent = ""; break; }
      const text = styleText(from) ?? from.textContent;
      if (dependsOnState(text)) to.textContent = withStates(text);
      else if (text !== from.textContent) to.textContent = text;
      copySheetState(from, to);
      break;
    }
    case "link":
      if (document.readyState === "complete" && isRefused(from)) to.setAttribute("media", "not all");
      copySheetState(from, to);
      break;
    case "input":
      if (from.type === "checkbox" && from.indeterminate) to.setAttribute("aria-checked", "mixed");
      if (from.type === "checkbox" || from.type === "radio") setAttribute(to, "checked", from.checked);
      else if (from.type !== "password" && from.type !== "file" && from.value !== from.defaultValue) {
        to.setAttribute("value", from.value);
      }
      break;
    case "textarea":
      if (from.value !== from.defaultValue) to.textContent = from.value;
      break;
    case "option":
      setAttribute(to, "selected", from.selected);
      break;
    case "select":
      // Browsers select the first option otherwise.
      if (from.selectedIndex < 0 && !from.multiple && from.size < 2) {
        const none = inert.createElement("option");
        setAttribute(none, "selected", true);
        setAttribute(none, "hidden", true);
        to.prepend(none);
      }
      break;
    case "noscript":
      // Where scripts run, its content is text.
      if (!stays(to) || from.firstElementChild) break;
      try { to.innerHTML = from.textContent; } catch { /* The page's policy demands trusted types. */ }
      break;
    case "dialog":
      if (from.matches(":modal") && !from.hasAttribute("aria-modal")) to.setAttribute("aria-modal", "true");
      break;
    case "iframe":
      copyFrame(from, to);
      break;
    case "img": {
      if (!from.currentSrc.startsWith("blob:")) break;
      const url = dataOf(from.currentSrc) ?? drawn(from, from.naturalWidth, from.naturalHeight);
      if (!url) break;
      to.setAttribute("src", url);
      to.removeAttribute("srcset");
      for (const source of to.closest("picture")?.querySelectorAll("source") ?? []) source.remove();
      break;
    }
    case "animate": case "animateMotion": case "animateTransform": case "set":
      // One that a script has started.
      try { from.getStartTime(); } catch { break; }
      to.setAttribute("begin", "0s");
      break;
    case "canvas": {
      const url = drawingOf(from);
      // Without scripts, a canvas is an ordinary element, which this replaces by an image.
      if (url) to.style.setProperty("content", `url("${url}")`);
      break;
    }
  }
};

const isShown = (head) => head !== null && getComputedStyle(head).display !== "none";

const copyFrame = (from, to) => {
  const url = from.contentDocument?.URL ?? "";
  if (!to.hasAttribute("src") && !to.hasAttribute("srcdoc") && isAddress(url)) {
    to.setAttribute("src", ownReference(url, from.baseURI));
    return;
  }
  const text = frameText(from);
  if (text === null) return;
  to.setAttribute("srcdoc", text);
  to.removeAttribute("src");
};
// The content of a frame without an address: of a srcdoc frame, or null if a sandbox or a policy hides it, and of one
// that scripts have written into.
const frameText = (frame) => {
  const shown = frame.contentDocument;
  const live = shown && !isAddress(shown.URL) ? shown.documentElement : null;
  if (!frame.hasAttribute("srcdoc") && !(live && shown.body?.hasChildNodes())) return null;
  let root;
  try {
    root = live ? inert.importNode(live, true)
      : new DOMParser().parseFromString(frame.srcdoc, "text/html").documentElement;
  } catch { return null; }
  if (live) {
    complete(live, root, false);
    const style = adopted(shown);
    if (style) root.append(style);
  }
  clean(root);
  if (live) separateHead(root, isShown(shown.head));
  asParsed(root);
  if (root.outerHTML.includes(TOKEN)) prettify(root);
  return root.outerHTML;
};

// The policy of the page has decided which of its styles apply. The snapshot has these, and as elements also those that
// scripts have added by other ways, which the policy would refuse.
const isRefused = (sheetOwner) => options.hasPolicy && !sheetOwner.sheet && sheetOwner.isConnected &&
  ["", "text/css"].includes(sheetOwner.type?.toLowerCase());
const withoutRefusedStyles = (root) => {
  const styled = root.querySelectorAll("[style]");
  for (const place of options.refusedStyles) {
    if (styled[place]) on(styled[place], "removeAttribute", "style");
  }
};
// What had a blob: URL, and drawings, have data: URLs in the snapshot.
const allowOurs = (policy) => {
  const directives = policy.split(";").filter((directive) => !/^\s*style-src/i.test(directive))
    .map((directive) => directive.replace(/\bblob:/gi, "blob: data:"));
  const find = (name) => directives.findIndex((directive) => directive.trim().toLowerCase().startsWith(`${name}-src`));
  const images = find("img"), all = find("default");
  if (hasDrawings && images >= 0) directives[images] += " data:";
  else if (hasDrawings && all >= 0) directives.push(directives[all].replace(/default/i, "img") + " data:");
  return [...directives, " style-src * data: blob: 'unsafe-inline'"].join(";");
};

// Original and copy have the same structure, so the n-th elements correspond. Most elements are only checked for a
// shadow root, and their copies not at all: each access costs time.
const stateful = "noscript, style, link[rel~='stylesheet' i], input, textarea, option, select, dialog[open], iframe[srcdoc], " +
  "iframe:not([src]), iframe:is([src=''], [src^='about:' i], [src^='javascript:' i], [src^='blob:' i]), [popover], " +
  "img:is([src^='blob:'], [srcset*='blob:']), picture img, canvas, svg [begin*='indefinite']";
// ARIA properties that refer to elements set an empty attribute: it cannot name elements without an id.
const references = Object.keys(Object.getOwnPropertyDescriptors(Element.prototype))
  .filter((property) => /^aria.*Elements?$/.test(property))
  .map((property) => [property, `aria-${property.slice(4).replace(/Elements?$/, "").toLowerCase()}`]);
const anyReference = references.map(([, attribute]) => `[${attribute}=""]`).join(",");
let names = 0;
const nameReferences = (original, from, to) => {
  if (!anyReference || !original.querySelector(anyReference)) return;
  const all = Array.from(from);
  const nameOf = (target) => {
    const copy = to[all.indexOf(target)];
    if (!copy) return "";
    if (!on(copy, "getAttribute", "id")) on(copy, "setAttribute", "id", `prerender-${++names}`);
    return on(copy, "getAttribute", "id");
  };
  all.forEach((element, i) => {
    for (const [property, attribute] of references) {
      if (on(element, "getAttribute", attribute) !== "") continue;
      const targets = [element[property] ?? []].flat().map(nameOf).filter(Boolean);
      if (targets.length) on(to[i], "setAttribute", attribute, targets.join(" "));
    }
  });
};

// The text of an attribute may also lack values (sheet_text.js): it gets those that are in force.
const lacking = "[style*=': ;'], [style*=':  !important;']";
const addValues = (original, from, to) => {
  if (!original.querySelector(lacking)) return;
  from.forEach((element, i) => {
    const text = on(element, "matches", lacking) ? on(to[i], "getAttribute", "style") : null;
    if (text === null) return;
    const inForce = on(element, "computedStyleMap");
    on(to[i], "setAttribute", "style", text.replace(lacksValue, (whole, name, priority = "") => {
      const value = inlineStyleOf(element).getPropertyValue(name) === "" ? inForce.get(name) : null;
      return value ? `${name}: ${value}${priority};` : whole;
    }));
  });
};

// The probe numbers elements in the same order.
const attached = new Map(options.attached.map(([number, ...rest]) => [number, rest]));
let elements = 0;
const addAttached = (to, found) => {
  if (!found) return;
  const [attributes, states] = found;
  for (const [name, value] of attributes) if (!to.hasAttribute(name)) to.setAttribute(name, value);
  for (const state of states) addMark(to, state);
};

// In SVG and MathML, a slot is an unknown element. Those of frames have other classes.
const isSlot = (element) => "assignedNodes" in element;

// The slots of a root that assigns them by script would be empty.
const nameSlots = (host, copy, root, content) => {
  if (root.slotAssignment !== "manual") return;
  const places = content.querySelectorAll("slot");
  root.querySelectorAll("slot").forEach((slot, i) => {
    if (!isSlot(slot)) return;
    const name = `prerender-${++names}`;
    places[i].setAttribute("name", name);
    for (const node of slot.assignedElements()) {
      const at = Array.prototype.indexOf.call(host.children, node);
      if (at >= 0) on(copy.children[at], "setAttribute", "slot", name);
    }
  });
};

const withoutDeclarations = (tree) => {
  forEachTemplate(tree, withoutDeclarations);
  for (const template of tree.querySelectorAll("template")) template.removeAttribute("shadowrootmode");
};

const complete = (original, copy, isNumbered = true) => {
  // The parser would attach those of templates that innerHTML has made, which are no shadow roots.
  withoutDeclarations(copy);
  const from = original.querySelectorAll("*");
  const to = copy.querySelectorAll("*");
  const fromStateful = original.querySelectorAll(stateful);
  const toStateful = copy.querySelectorAll(stateful);
  const first = elements;
  if (isNumbered) {
    elements += from.length;
    findUnwanted(original, from, to);
  }
  for (let i = 0; i < fromStateful.length; i++) copyState(fromStateful[i], toStateful[i]);
  nameReferences(original, from, to);
  addValues(original, from, to);
  markStates(original, from, to);
  for (let i = 0; i < from.length; i++) {
    const root = shadowRootOf(from[i]);
    if (animated.has(from[i])) copyAnimated(from[i], to[i]);
    if (isNumbered && attached.size) addAttached(to[i], attached.get(first + i));
    if (!root) continue;
    if (options.flattenShadowDom) to[i].replaceChildren(...flattened(from[i], to[i], root, isNumbered));
    else to[i].prepend(declared(from[i], to[i], root, isNumbered));
  }
};

const imported = (root) => {
  const content = inert.createElement("div");
  for (const node of root.childNodes) content.append(inert.importNode(node, true));
  return content;
};

const copied = (root, isNumbered, content = imported(root)) => {
  complete(root, content, isNumbered);
  clean(content);
  return content;
};

const declared = (host, copy, root, isNumbered) => {
  const template = inert.createElement("template");
  // Closed ones, too: a snapshot has no scripts to hide it from, and readers that walk the DOM can read it.
  template.setAttribute("shadowrootmode", "open");
  if (root.delegatesFocus) template.setAttribute("shadowrootdelegatesfocus", "");
  const style = adopted(root);
  const content = copied(root, isNumbered);
  nameSlots(host, copy, root, content);
  template.content.append(...(style ? [style] : []), ...content.childNodes);
  return template;
};

// The flattened tree, for readers without shadow DOM: slots are replaced by their content. Styles of a shadow root
// are removed, because they would apply to the whole page.
const flattened = (host, copy, root, isNumbered) => {
  const light = new Map(Array.from(host.childNodes, (node, i) => [node, copy.childNodes[i]]));
  const content = imported(root);
  // Hosts within change places when they are flattened.
  const slots = Array.from(root.querySelectorAll("slot"));
  const places = Array.from(content.querySelectorAll("slot"));
  copied(root, isNumbered, content);
  for (const style of content.querySelectorAll("style, link[rel~='stylesheet']")) style.remove();
  places.forEach((place, i) => {
    if (!isSlot(place)) return;
    const assigned = (slots[i]?.assignedNodes() ?? []).map((node) => light.get(node)).filter(Boolean);
    if (unwantedCopies.has(place)) place.remove();
    else place.replaceWith(...(assigned.length ? assigned : place.childNodes));
  });
  return [...content.childNodes];
};

const clean = (copy) => {
  forEachTemplate(copy, clean);
  for (const element of copy.querySelectorAll(removed.join(","))) {
    if (!stays(element)) element.remove();
  }
  for (const script of copy.querySelectorAll("script")) {
    if (!stays(script) && !dataScript.test(script.type)) script.remove();
  }
};

// Enough for any page. More would only fill the store.
const MOST_METAS = 20;
const LONGEST_META = 4000;
const metas = (name) => {
  /** @type {NodeListOf<HTMLMetaElement>} */
  const matching = document.querySelectorAll(`meta[name="${name}" i]`);
  return Array.from(matching).slice(0, MOST_METAS).map((meta) => meta.content.slice(0, LONGEST_META).trim());
};

// The page's URL without the parameter by which it has reloaded itself past caches.
const ownUrl = () => {
  if (!options.cacheBuster) return location.href;
  const url = new URL(location.href);
  url.search = url.search.slice(1).split("&").filter((one) => one !== options.cacheBuster).join("&");
  return url.href;
};

const canonicalLink = 'link[rel~="canonical" i]';
// The number of characters before the content of the head, or -1 if the page needs no canonical link.
const canonicalAt = (root) => {
  const head = root.querySelector("head");
  if (!head || root.querySelector(canonicalLink)) return -1;
  const tag = (element) => element.cloneNode(false).outerHTML.slice(0, -`</${element.localName}>`.length);
  const before = inert.createElement("div");
  for (const node of root.childNodes) {
    if (node === head) break;
    before.append(node.cloneNode(true));
  }
  return Array.from(asText(doctype() + tag(root) + before.innerHTML + tag(head))).length;
};

const doctype = () => {
  const type = document.doctype;
  // XHTML needs none for standards mode.
  if (!type) return document.compatMode === "CSS1Compat" ? "<!DOCTYPE html>" : "";
  const publicId = type.publicId ? ` PUBLIC "${type.publicId}"` : "";
  const system = type.systemId ? `${publicId ? "" : " SYSTEM"} "${type.systemId}"` : "";
  return `<!DOCTYPE ${type.name}${publicId}${system}>`;
};

const tagOf = ([name, attributes, text]) => {
  const tag = inert.createElement(name);
  for (const [attribute, value] of attributes) tag.setAttribute(attribute, value);
  if (text) tag.append(inert.createTextNode(text));
  return tag;
};

let canonicalPlace = -1;
const html = () => {
  const root = inert.importNode(document.documentElement, true);
  withoutRefusedStyles(root);
  complete(document.documentElement, root);
  const style = adopted(document);
  if (style) (root.querySelector("head") ?? root).append(style);
  for (const copy of unwantedCopies) on(copy, "remove");
  root.querySelector("head")?.append(...options.add.map(tagOf));
  clean(root);
  separateHead(root, isShown(document.head));
  for (const meta of root.querySelectorAll(ownMetas)) meta.remove();
  // A link without a URL links to nothing.
  for (const link of root.querySelectorAll(canonicalLink)) if (!link.getAttribute("href")?.trim()) link.remove();
  for (const meta of root.querySelectorAll("meta[http-equiv='content-security-policy' i]")) {
    meta.setAttribute("content", allowOurs(meta.getAttribute("content") ?? ""));
  }
  for (const meta of root.querySelectorAll("meta[charset], meta[http-equiv='content-type' i]")) meta.remove();
  const charset = inert.createElement("meta");
  charset.setAttribute("charset", "utf-8");
  const head = root.querySelector("head");
  head?.prepend(charset);
  if (options.addCanonical && head && !root.querySelector(canonicalLink)) {
    const canonical = inert.createElement("link");
    canonical.rel = "canonical";
    canonical.setAttribute("href", ownUrl());
    head.append(canonical);
  }
  asParsed(root);
  let text = root.outerHTML;
  if (text.includes(TOKEN)) {
    prettify(root);
    text = root.outerHTML;
  }
  canonicalPlace = canonicalAt(root);
  return asText(doctype() + withData(text));
};

// The text of the page: without scripts and styles, but with shadow roots.
const lengthOf = (node) => node.textContent.replace(/\s+/g, " ").trim().length;
const UNREAD = "script, style, noscript";
const textLength = (body) => [body, ...shadowRoots].reduce((sum, root) => {
  const unread = Array.from(root.querySelectorAll(UNREAD), lengthOf);
  return sum + lengthOf(root) - unread.reduce((length, part) => length + part, 0);
}, 0);
// The same without what is removed.
const { SHOW_ELEMENT, SHOW_TEXT, FILTER_ACCEPT, FILTER_REJECT } = NodeFilter;
const remainingLength = (body) => [body, ...shadowRoots].filter((root) => !isUnwanted(root)).reduce((sum, root) => {
  const nodes = document.createTreeWalker(root, SHOW_ELEMENT | SHOW_TEXT, (node) =>
    (unwanted.has(node) || (node instanceof Element && on(node, "matches", UNREAD)) ? FILTER_REJECT : FILTER_ACCEPT));
  let text = "";
  while (nodes.nextNode()) if (nodes.currentNode instanceof Text) text += nodes.currentNode.data;
  return sum + text.replace(/\s+/g, " ").trim().length;
}, 0);

// A chunk that the receiver can parse without blocking. Characters are never split.
const PIECE_LENGTH = 2 ** 20;
const inPieces = (text) => {
  const pieces = [];
  for (let start = 0; start < text.length;) {
    let end = Math.min(start + PIECE_LENGTH, text.length);
    if (end < text.length && text.codePointAt(end - 1) > 0xffff) end--;
    pieces.push(text.slice(start, end));
    start = end;
  }
  return pieces;
};

// Visible signs that more content is to come.
const LOADING = '[aria-busy="true"], [role="progressbar"], progress:not([value]), [class*="skeleton" i], ' +
  '[class*="spinner" i], [class*="loading" i], [class*="loader" i]';
const MOST_SIGNS = 100;
const isLoading = () => [document, ...shadowRoots].some((root) =>
  Array.from(root.querySelectorAll(LOADING)).slice(0, MOST_SIGNS).some((sign) =>
    !isUnwanted(sign) && on(sign, "checkVisibility", { opacityProperty: true, visibilityProperty: true })));

// The result of the script: fields of Rendered (page_results.py), and how many pieces of the text follow.
export const serialize = () => {
  const body = document.body;
  const [first, ...more] = inPieces(document.documentElement ? html() : "");
  globalThis.moreHtml = more;
  const entries = (kind) => /** @type {any[]} */ (performance.getEntriesByType(kind));
  const [navigation] = entries("navigation");
  return {
    html: first ?? "",
    more: more.length,
    canonical_at: canonicalPlace,
    url: location.href,
    own_url: ownUrl(),
    content_type: document.contentType,
    // 0: not fetched by HTTP.
    status: navigation?.responseStatus ?? 0,
    redirected: navigation?.redirectCount > 0,
    text_length: body ? (unwanted.size ? remainingLength : textLength)(body) : 0,
    parsing: document.readyState === "loading",
    loading: isLoading(),
    // Visible content without text. The shadow roots were collected before.
    pictures: [document, ...shadowRoots].some((root) => Array.from(root.querySelectorAll(
      "img, svg, canvas, video, audio, picture, iframe, frame, object, embed, input, button, select, textarea"))
      .some((one) => !isUnwanted(one))),
    status_codes: [...metas("prerender-status-code"), ...metas("render:status_code")],
    headers: [...metas("prerender-header"), ...metas("render:header")],
    cache_ttls: metas("prerender-cache-ttl"),
    cache_tags: metas("prerender-cache-tags"),
    // Resources from the browser's own cache did not pass the gateway.
    resources: entries("resource").slice(0, 200).map((entry) => [
      entry.name.slice(0, 500), entry.initiatorType, entry.responseStatus ?? 0, entry.encodedBodySize,
      entry.startTime / 1000,
    ]),
  };
};
