// Waterfall of the requests that the page made during the render.

import { bytes, card, count, duration, h, nothing, pill } from "./dom.js";

const VERDICTS = {
  allowed: ["fetched", "good", "Fetched from the site or a third party"],
  cached: ["cached", "info", "From the cache that renders share"],
  blocked: ["blocked", "plain", "Blocked by [network]"],
  failed: ["failed", "bad", "Error response"],
  aborted: ["aborted", "plain", "Aborted by the page"],
  stream: ["stream", "info", "WebSocket or event stream: not waited for"],
  unanswered: ["unanswered", "warn", "No response before the page settled"],
};

export function waterfall({ fetches }) {
  const counts = {};
  for (const fetch of fetches) counts[fetch.verdict] = (counts[fetch.verdict] || 0) + 1;
  const end = Math.max(...fetches.map((fetch) => fetch.start + fetch.seconds), 0.001);
  const total = fetches.reduce((sum, fetch) => sum + fetch.bytes, 0);
  return card("Files the page loaded", { id: "waterfall", class: "listing" },
    fetches.length ? [
      h("div", { class: "bar" }, h("p", { class: "marks" }, Object.entries(VERDICTS)
        .filter(([verdict]) => counts[verdict])
        .map(([verdict, [label, tone, title]]) => pill(`${count(counts[verdict])} ${label}`, tone, title)),
      h("span", { class: "dim" }, `${bytes(total)} in ${duration(end)}`))),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Files the page loaded" },
        h("table", { class: "list waterfall" },
          h("thead", {}, h("tr", {}, ["File", "Type", "Verdict"].map((text) => h("th", { scope: "col" }, text)),
            h("th", { scope: "col", class: "number" }, "Size"), h("th", { scope: "col", class: "time" }, `Time: 0 to ${duration(end)}`))),
          h("tbody", {}, fetches.map((fetch) => line(fetch, end))))),
    ] : nothing("No files."));
}

function line(fetch, end) {
  const [label, tone, title] = VERDICTS[fetch.verdict];
  // Responses from the browser's own cache have no measured duration.
  const measured = fetch.verdict !== "cached" || fetch.seconds > 0;
  const bar = h("span", { class: `span ${fetch.verdict}` });
  bar.style.setProperty("--from", fetch.start / end);
  bar.style.setProperty("--long", fetch.seconds / end);
  return h("tr", {},
    h("th", { scope: "row", class: "page", "data-label": "File" },
      h("span", { class: "path", title: fetch.url }, fetch.method === "GET" ? null : h("strong", {}, `${fetch.method} `), name(fetch.url)),
      h("span", { class: "dim title" }, host(fetch.url))),
    h("td", { "data-label": "Type" }, KINDS[fetch.kind] || fetch.kind || "other"),
    h("td", { "data-label": "Verdict" }, pill(fetch.status ? `${label} ${fetch.status}` : label, tone, fetch.reason || title),
      fetch.reason ? h("span", { class: "dim reason" }, fetch.reason) : null),
    h("td", { class: "number", "data-label": "Size" }, bytes(fetch.bytes)),
    h("td", { class: "time", "data-label": "Time" }, measured ? [h("span", { class: "track" }, bar),
      h("span", { class: "dim" }, `${duration(fetch.seconds)}, from ${duration(fetch.start)}`)]
      : h("span", { class: "dim" }, "from the browser’s cache")));
}

const KINDS = { fetch: "data", image: "picture", iframe: "frame", script: "script", style: "style", document: "document" };

function name(url) {
  try {
    const { pathname, search } = new URL(url);
    return pathname + search;
  } catch { return url; }
}

function host(url) {
  try { return new URL(url).host; } catch { return ""; }
}
