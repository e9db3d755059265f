// Elements and formats. Whatever comes from a snapshot gets into the page as text, never as HTML.

/** An element. Properties beginning with "on" are listeners; children are nodes, texts, or nothing. */
export function h(name, properties = {}, ...children) {
  return fill(document.createElement(name), properties, children);
}

/** An element of SVG. */
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

/** Put these in the place of an element's children. replaceChildren alone would write "null" for nothing. */
export function replace(element, ...children) {
  element.replaceChildren(...present(children));
}

const present = (children) => children.flat(9).filter((child) => child !== null && child !== undefined && child !== false);

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export const count = (number) => whole.format(Math.round(number));

/** A number of things: "1 page", "2 pages". */
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

/** A moment as people say it, with the exact one when it is pointed at. */
export function moment(unixSeconds) {
  const date = new Date(unixSeconds * 1000);
  const seconds = Date.now() / 1000 - unixSeconds;
  const text = seconds >= 0
    ? seconds < 2 ? "just now" : `${duration(Math.round(seconds))} ago`
    : `in ${duration(Math.round(-seconds))}`;
  return h("time", { datetime: date.toISOString(), title: clock.format(date) }, text);
}

/** A word in a small coloured frame. Colour is never all that tells. */
export function pill(text, tone = "plain", title = undefined) {
  return h("span", { class: `pill ${tone}`, title }, text);
}

export function statusPill(status) {
  const tone = status >= 500 || !status ? "bad" : status >= 400 ? "warn" : status >= 300 ? "info" : "good";
  return pill(status ? String(status) : "none", tone);
}

const STATES = {
  fresh: ["Fresh", "good", "Shown to crawlers as it is"],
  stale: ["Stale", "warn", "Past its time: rendered again with the next request"],
};

export function statePill(state) {
  return pill(...STATES[state]);
}

/** Which of several snapshots of a page it is, where there may be several. */
export function variantPills({ device, language, format }) {
  return [
    device === "mobile" ? pill("Phone", "accent", "Rendered as on a phone") : null, " ",
    language ? pill(language, "accent", "Rendered for this language") : null, " ",
    format === "markdown" ? pill("Markdown", "accent", "Made of the snapshot in HTML") : null,
  ];
}

const CACHES = {
  hit: ["Hit", "good", "A fresh snapshot"],
  stale: ["Stale hit", "info", "An old snapshot, while a new one is made"],
  miss: ["Rendered", "accent", "Rendered for this request"],
  coalesced: ["Shared render", "accent", "Rendered for somebody else who asked at the same time"],
  kept: ["Old one kept", "warn", "The new snapshot was worse, or could not be made"],
  error: ["Failed", "bad", "No snapshot could be made"],
};

/** How a request was answered. */
export function answerPill(item) {
  if (item.cache) return pill(CACHES[item.cache][0], CACHES[item.cache][1], item.detail || CACHES[item.cache][2]);
  if (item.decision === "refuse") return pill("Refused", "warn", item.reason);
  return pill("Forwarded", "plain", item.detail || item.reason);
}

/** A card with a heading. */
export function card(title, properties, ...children) {
  const { note, ...rest } = properties || {};
  return h("section", { ...rest, class: `card ${rest.class || ""}` },
    h("header", {}, h("h2", {}, title), note && h("p", { class: "note" }, note)), ...children);
}

/** What is shown where there is nothing. */
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

/** Ask for a yes; the promise tells. */
export function confirm(title, text, yes) {
  const dialog = document.getElementById("ask");
  document.getElementById("ask-title").textContent = title;
  document.getElementById("ask-text").textContent = text;
  document.getElementById("ask-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
