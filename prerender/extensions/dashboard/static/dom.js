// DOM and formatting helpers. Content of snapshots is inserted as text, never as HTML.

/** Create an element. Properties that begin with "on" are listeners; children are nodes, strings or null. */
export function h(name, properties = {}, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** Create an SVG element. */
export function s(name, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), properties, children);
}

function fill(element, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

/** Replace the children of an element. replaceChildren alone would write "null". */
export function replace(element, ...children) {
  element.replaceChildren(...present(children));
}

const present = (children) => children.flat(9).filter((child) => child !== null && child !== undefined && child !== false);

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const count = (number) => whole.format(Math.round(number));

/** A count with its noun: "1 page", "2 pages". */
export const counted = (number, noun, plural = `${noun}s`) => `${count(number)} ${Math.round(number) === 1 ? noun : plural}`;

export function percent(part, of) {
  return of ? `${short.format(100 * part / of)} %` : "–";
}

export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) { number /= 1000; unit++; }
  return `${unit ? short.format(number) : whole.format(number)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds > 0 && seconds < 0.00005) return "< 0.1 ms";
  if (seconds < 0.0995) return `${short.format(seconds * 1000)} ms`;
  if (seconds < 0.9995) return `${whole.format(Math.round(seconds * 1000))} ms`;
  if (seconds < 120) return `${short.format(seconds)} s`;
  if (seconds < 7200) return `${whole.format(Math.round(seconds / 60))} min`;
  if (seconds < 172800) return `${whole.format(Math.round(seconds / 3600))} h`;
  return `${whole.format(Math.round(seconds / 86400))} days`;
}

/** A relative time, with the exact one as tooltip. */
export function moment(unixSeconds) {
  const date = new Date(unixSeconds * 1000);
  return h("time", { datetime: date.toISOString(), title: clock.format(date) }, relative(date));
}

function relative(date) {
  const seconds = (Date.now() - date) / 1000;
  if (seconds < 0) return `in ${duration(Math.round(-seconds))}`;
  return seconds < 2 ? "just now" : `${duration(Math.round(seconds))} ago`;
}

const ADVANCE_MS = 5000;
setInterval(() => {
  for (const one of document.querySelectorAll("time")) {
    const text = relative(new Date(one.dateTime));
    if (one.textContent !== text) one.textContent = text;
  }
}, ADVANCE_MS);

/** A coloured label. Colour never carries information alone. */
export function pill(text, tone = "plain", title = undefined) {
  return h("span", { class: `pill ${tone}`, title }, text);
}

export function statusPill(status) {
  const tone = status >= 500 || !status ? "bad" : status >= 400 ? "warn" : status >= 300 ? "info" : "good";
  return pill(status ? String(status) : "none", tone);
}

const STATES = {
  fresh: ["Fresh", "good", "Served to crawlers"],
  stale: ["Stale", "warn", "Expired: the next request renders it again"],
};

export function statePill(state) {
  return pill(...STATES[state]);
}

/** Labels of the variant of a snapshot. */
export function variantPills({ device, language, format }) {
  return [
    device === "mobile" ? pill("Phone", "accent", "Rendered for phones") : null, " ",
    language ? pill(language, "accent", "Rendered for this language") : null, " ",
    format === "markdown" ? pill("Markdown", "accent", "Converted from the HTML snapshot") : null,
  ];
}

const CACHES = {
  hit: ["Hit", "good"], stale: ["Stale hit", "info"], revalidated: ["Not changed", "good"], miss: ["Rendered", "accent"], coalesced: ["Shared render", "accent"],
  kept: ["Old snapshot kept", "warn"], error: ["Failed", "bad"],
};

/** The result of a request. */
export function answerPill(item) {
  if (item.cache) return pill(...CACHES[item.cache], item.detail || item.cache_text);
  if (item.decision === "refuse") return pill("Refused", "warn", item.reason_text);
  return pill("Forwarded", "plain", item.detail || item.reason_text);
}

/** A card with a heading. */
export function card(title, properties, ...children) {
  const { note, ...rest } = properties || {};
  return h("section", { ...rest, class: `card ${rest.class || ""}` },
    h("header", {}, h("h2", {}, title), note && h("p", { class: "note" }, note)), ...children);
}

/** Whether a text inside is selected, which new content would undo. */
export function isSelected(element) {
  const selection = getSelection();
  return !selection.isCollapsed && element.contains(selection.anchorNode);
}

/** A placeholder for empty content. */
export function nothing(text, ...more) {
  return h("div", { class: "nothing" }, h("p", {}, text), ...more);
}

/** Names and values. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, ...value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, ...value))));
}

export function toast(text, tone = "good") {
  const note = h("p", { class: `toast ${tone}` }, text);
  document.getElementById("toasts").append(note);
  setTimeout(() => note.remove(), 7000);
}

/** Ask for confirmation. Resolves to the choice. */
export function confirm(title, text, yes) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("ask"));
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-text").textContent = text;
  document.getElementById("ask-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
