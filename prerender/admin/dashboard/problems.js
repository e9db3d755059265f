// Problems: pages that fail, are cut off or are slow, with the reasons.

import * as api from "./api.js";
import { card, count, duration, h, moment, nothing } from "./dom.js";

const LISTS = [
  ["failing", "Failed", "Renders without a usable snapshot (incomplete, failed, blank). Crawlers get the last good snapshot, or 503.", "No failed renders."],
  ["cut_off", "Cut off", "Renders that reached the time limit. Parts of the page may be missing.", "None."],
  ["troubled", "Other problems", "Requests that failed or got no response, and script errors.", "None."],
  ["slowest", "Slowest", "By mean render time, including the time in the queue.", "No renders yet."],
];

export async function problems(root, here, signal) {
  document.title = "Problems · Prerender";
  const found = await api.get("problems", {}, signal);
  root.append(h("h1", {}, "Problems"),
    h("p", { class: "lead" }, "Counted since this process started, for the pages it rendered last."),
    ...LISTS.map(([name, title, note, empty]) => card(title, { note, class: "listing" },
      found[name].length ? table(found[name]) : nothing(empty))));
}

function table(items) {
  const label = (text, cell, more = {}) => h("td", { "data-label": text, ...more }, cell);
  return h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, ["Page", "Reason"].map((text) => h("th", { scope: "col" }, text)),
      ["Renders", "Failed", "Cut off", "Mean", "Slowest", "Last"].map((text) => h("th", { scope: "col", class: "number" }, text)))),
    h("tbody", {}, items.map((item) => h("tr", {},
      h("th", { scope: "row", class: "page", "data-label": "Page" },
        h("a", { href: `#/page/${item.id}?url=${encodeURIComponent(item.url)}` }, item.url.replace(/^https?:\/\/[^/]+/, ""))),
      label("Reason", [item.failing_since ? ["failing since ", moment(item.failing_since), ": "] : null, item.reason || "–"], { class: "reason" }),
      label("Renders", count(item.renders), { class: "number" }),
      label("Failed", count(item.failed), { class: "number" }),
      label("Cut off", count(item.cut_off), { class: "number" }),
      label("Mean", duration(item.mean_seconds), { class: "number" }),
      label("Slowest", duration(item.slowest_seconds), { class: "number" }),
      label("Last", moment(item.last), { class: "number" }))))));
}
