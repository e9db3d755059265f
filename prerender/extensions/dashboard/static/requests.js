// Requests: the last requests of crawlers, with their responses.

import * as api from "./api.js";
import { answerPill, bytes, duration, facts, h, moment, pill, statusPill, variantPills } from "./dom.js";
import { list, STATUSES } from "./tables.js";
import { CLASSES, pageOf, path, requesterName } from "./words.js";

const CRAWLERS = [["", "Any crawler"], ...Object.entries(CLASSES), ["others", "Unknown clients"]];
const PHASES = [["queue", "queue"], ["document", "document"], ["settle", "settle"], ["serialize", "serialize"]];
const CACHES = [
  ["", "Any result"], ["hit", "Hits"], ["stale", "Stale hits"], ["revalidated", "Not changed"], ["miss", "Rendered"], ["coalesced", "Shared renders"],
  ["kept", "Old snapshot kept"], ["error", "Failed"],
];
const DECISIONS = [["", "Any decision"], ["render", "Snapshot"], ["forward", "Forwarded"], ["refuse", "Refused"]];
const DECISION_NAMES = Object.fromEntries(DECISIONS);

export async function requests(root, here, signal) {
  document.title = "Requests · Prerender";
  const live = h("input", { type: "checkbox", id: "live" });
  const pausing = h("span", { class: "dim" });
  const shown = list({
    here, signal,
    defaults: { sort: "time", order: "desc" },
    filters: [
      { name: "search", label: "Search", placeholder: "Part of the URL or User-Agent" },
      { name: "crawler", label: "Crawler", options: CRAWLERS },
      { name: "decision", label: "Decision", options: DECISIONS },
      { name: "cache", label: "Result", options: CACHES },
      { name: "status", label: "Status", options: STATUSES },
    ],
    details,
    columns: [
      { label: "Page", sort: "target", first: "asc", heading: true, class: "page", cell: target },
      { label: "Crawler", cell: crawler, class: "crawler" },
      { label: "Result", cell: answerPill },
      { label: "Status", sort: "status", cell: (item) => statusPill(item.status) },
      { label: "Time", sort: "seconds", number: true, cell: (item) => duration(item.seconds) },
      { label: "Size", sort: "bytes", number: true, cell: (item) => bytes(item.bytes) },
      { label: "When", sort: "time", number: true, cell: (item) => moment(item.time) },
    ],
    load: (query) => api.get("requests", query, signal),
    empty: "No matching requests.",
    before: h("label", { class: "check", for: "live" }, live, h("span", {}, "Live", pausing)),
  });
  root.append(h("h1", {}, "Requests"),
    h("p", { class: "lead" }, "The last requests of crawlers to this process. Requests of visitors are not kept."),
    shown.element);
  await shown.first();
  const timer = setInterval(() => {
    const isInUse = live.checked && shown.isInUse();
    pausing.textContent = isInUse ? " (paused while rows are in use)" : "";
    if (live.checked && !isInUse && !document.hidden) shown.reload();
  }, 3000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

/** All details of a request. */
function details(item) {
  return facts([
    ["Decision", `${DECISION_NAMES[item.decision]}: ${item.reason_text}`],
    item.detail ? ["Detail", item.detail] : null,
    item.error ? ["Error", item.error_text] : null,
    ["Request", h("code", {}, `${item.method} ${item.target}`)],
    ["Client", h("code", {}, item.remote)],
    ["User-Agent", item.user_agent ? h("code", {}, item.user_agent) : "none"],
    item.agent ? ["Signed by", h("code", {}, item.agent)] : null,
    item.origin_seconds === null ? null : ["Origin", `responded after ${duration(item.origin_seconds)}`],
    item.phases ? ["Render", PHASES.map(([name, label]) => `${label} ${duration(item.phases[name])}`).join(", ")] : null,
    item.trace_id ? ["Trace", h("code", {}, item.trace_id)] : null,
  ]);
}

function target(item) {
  const text = item.url ? path(item.url) : item.target;
  return item.target.startsWith("/")
    ? [h("a", { href: pageOf(item), title: item.target }, text), " ", variantPills(item)]
    : h("span", { title: item.reason_text }, text);
}

function crawler(item) {
  return h("span", { title: item.user_agent || "no User-Agent" },
    item.crawler ? pill(CLASSES[item.crawler], "plain") : null, " ",
    h("span", { class: "dim cut" }, requesterName(item)));
}
