// What is slow or wrong? The pages that give most trouble, with the reasons.

import * as api from "./api.js";
import { card, count, duration, h, moment, nothing } from "./dom.js";

const LISTS = [
  ["failing", "Most failing", "Renders without a usable snapshot (incomplete, failed, blank): crawlers get the last good one, or a 503.", "No render has failed."],
  ["cut_off", "Most cut off", "Renders that reached the time limit: something of the page may be missing.", "None was cut off."],
  ["troubled", "Other problems", "Requests of the page that failed or got no answer, and errors of its scripts.", "None."],
  ["slowest", "Slowest", "By the mean time of a render, the wait for a page included.", "Nothing has been rendered yet."],
];

export async function problems(root, here, signal) {
  document.title = "Problems · Prerender";
  const found = await api.get("problems", {}, signal);
  root.append(h("h1", {}, "Problems"),
    h("p", { class: "lead" }, "Counted by this process since it started, for the pages it rendered last."),
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
