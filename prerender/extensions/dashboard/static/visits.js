// The requests of crawlers for one page.

import * as api from "./api.js";
import { answerPill, card, duration, h, moment, nothing, pill, replace, statusPill } from "./dom.js";
import { CLASSES, requesterName } from "./words.js";

const MOST = 20;

export function visits(url, signal) {
  const place = h("div", { "aria-live": "polite" }, h("p", { class: "dim" }, "…"));
  api.get("requests", { page: url, limit: MOST }, signal).then(
    (found) => replace(place, found.items.length ? table(found.items)
      : nothing("No crawler has requested this page since the proxy started, or not among the last 3,000 requests.")),
    (error) => { if (!signal.aborted) replace(place, nothing(error.message)); },
  );
  return card("Visits of crawlers", { id: "visits", class: "listing", note: "The last requests of crawlers for this page, and what they got." }, place);
}

function table(items) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Visits of crawlers" },
    h("table", { class: "list visits" },
      h("thead", {}, h("tr", {}, ["Crawler", "Result", "Status", "Reason"].map((name) => h("th", { scope: "col" }, name)),
        ["Time", "When"].map((name) => h("th", { scope: "col", class: "number" }, name)))),
      h("tbody", {}, items.map((item) => h("tr", {},
        h("th", { scope: "row" }, requesterName(item), " ", item.crawler ? pill(CLASSES[item.crawler], "plain") : null),
        h("td", {}, answerPill(item)), h("td", {}, statusPill(item.status)),
        h("td", { class: "reason", "data-label": "Reason" }, item.error_text || item.reason_text),
        h("td", { class: "number", "data-label": "Time" }, duration(item.seconds)),
        h("td", { class: "number", "data-label": "When" }, moment(item.time)))))));
}
