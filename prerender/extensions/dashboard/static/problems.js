// Problems: pages that fail, are cut off or are slow, with the reasons.

import * as api from "./api.js";
import { card, count, duration, h, moment, nothing, pill } from "./dom.js";
import { pageOf, path } from "./words.js";

const LISTS = [
  ["failing", "Failed", "Renders without a usable snapshot (incomplete, failed, blank). Crawlers get the last good snapshot, or 503.", "No failed renders."],
  ["cut_off", "Cut off", "Renders that reached the time limit. Parts of the page may be missing.", "None."],
  ["troubled", "Other problems", "Requests that failed or got no response, and script errors.", "None."],
];

/** Whether a page has been rendered without a problem since its last one. */
export const isOver = (item) => item.last > item.last_problem;

export async function problems(root, here, signal) {
  document.title = "Problems · Prerender";
  const found = await api.get("problems", {}, signal);
  root.append(h("h1", {}, "Problems"),
    h("p", { class: "lead" }, "The pages with the last problems, of all replicas. Kept over restarts, for 30 days after the last render."),
    ...LISTS.map(([name, title, note, empty]) => card(title, { note, class: "listing" },
      found[name].length ? table(found[name], PROBLEM) : nothing(empty))),
    card("Slowest", { note: "For information. By mean render time, including the time in the queue.", class: "listing" },
      found.slowest.length ? table(found.slowest, SLOW) : nothing("No renders yet.")));
}

const number = (label, value) => ({ label, value, class: "number" });
const SLOW = [
  number("Renders", (item) => count(item.renders)),
  number("Mean", (item) => duration(item.mean_seconds)),
  number("Slowest", (item) => duration(item.slowest_seconds)),
  number("Last render", (item) => moment(item.last)),
];
const PROBLEM = [
  { label: "Reason", value: why, class: "reason" },
  number("Renders", (item) => count(item.renders)),
  number("Failed", (item) => count(item.failed)),
  number("Cut off", (item) => count(item.cut_off)),
  number("Last problem", (item) => moment(item.last_problem)),
];

function why(item) {
  if (isOver(item)) return [pill("Resolved", "good"), " rendered again ", moment(item.last), ". Before: ", item.reason];
  return [item.failing_since ? ["failing since ", moment(item.failing_since), ": "] : null, item.reason || "–"];
}

function table(items, columns) {
  return h("div", { class: "scroll" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Page"),
      columns.map((column) => h("th", { scope: "col", class: column.class }, column.label)))),
    h("tbody", {}, items.map((item) => h("tr", {},
      h("th", { scope: "row", class: "page", "data-label": "Page" }, h("a", { href: pageOf(item) }, path(item.url))),
      columns.map((column) => h("td", { class: column.class, "data-label": column.label },
        column.class === "reason" ? h("span", {}, column.value(item)) : column.value(item))))))));
}
