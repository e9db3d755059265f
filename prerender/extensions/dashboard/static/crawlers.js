// Crawlers by name, with their requests and responses.

import { card, count, counted, duration, h, moment, nothing, pill } from "./dom.js";
import { CLASSES, pageOf, path } from "./words.js";

const GOT = [["snapshots", "snapshot", "s", "hit"], ["forwarded", "forwarded", "", "document"], ["refused", "refused", "", "plain"], ["errors", "error", "s", "error"]];
const PERIODS = [["hour", "Last hour"], ["start", "Since start"]];

/** found: the response of /crawlers for a period; choose(period): switch to the other one; earlier: the
    response of /report/recent, if the process is younger than an hour. */
export function crawlers(found, period, choose, earlier) {
  const modes = PERIODS.map(([value, label]) => h("button", {
    type: "button", value, "aria-pressed": String(value === period), onclick: () => choose(value),
  }, label));
  return card("Crawlers", { id: "crawlers", class: "listing" },
    h("div", { class: "bar" },
      h("p", { class: "count" }, `${counted(found.items.length, "crawler")} since `, moment(found.since), found.listed ? `; list of crawlers of ${found.listed}` : ""),
      h("div", { class: "actions switch", role: "group", "aria-label": "Period" }, modes)),
    found.items.length ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Crawlers" },
      h("table", { class: "list crawlers" },
        h("thead", {}, h("tr", {}, ["Crawler", "Responses"].map(head), ["Requests", "Median", "95 %", "Last"].map(number), head("Top pages"))),
        h("tbody", {}, found.items.map(row))))
      : nothing(period === "hour" ? "No crawlers in the last hour of this process." : "No crawlers yet."),
    period === "hour" && earlier?.items.length ? h("p", { class: "count found" }, "Of all replicas, with those before the restart, since ", moment(earlier.since), ": ",
      earlier.items.slice(0, 10).map((one) => `${one.crawler} ${count(one.requests)}`).join(", "), earlier.items.length > 10 ? ", …" : ".") : null,
    found.ranges.length ? addresses(found.ranges) : null);
}

/** The published lists of addresses, the oldest age first. */
function addresses(ranges) {
  const received = ranges.filter((one) => one.fetched).map((one) => one.fetched);
  const failed = ranges.filter((one) => one.error);
  return h("details", { class: "ranges" },
    h("summary", {}, "Published addresses", `: ${received.length} of ${counted(ranges.length, "list")} received`,
      received.length ? [", the oldest ", moment(Math.min(...received))] : null, " ",
      failed.length ? pill(`${count(failed.length)} not renewed`, "warn") : null),
    h("ul", {}, ranges.map((one) => h("li", {}, one.url, ": ",
      one.fetched ? [counted(one.networks, "network"), ", received ", moment(one.fetched)] : "never received",
      one.error ? `; not renewed: ${one.error}` : null))));
}

const head = (text) => h("th", { scope: "col" }, text);
const number = (text) => h("th", { scope: "col", class: "number" }, text);

function row(item) {
  const others = item.name === "others";
  const name = others ? h("a", { href: "#/requests?crawler=others" }, "Unknown clients (ugly URLs)")
    : h("a", { href: `#/requests?search=${encodeURIComponent(item.name)}` }, item.name);
  return h("tr", {},
    h("th", { scope: "row", class: "name" }, name, " ", item.crawler ? pill(CLASSES[item.crawler], "plain") : null, " ",
      item.javascript ? pill("runs JavaScript", "plain") : null, " ",
      item.operator ? h("small", { class: "dim" }, item.docs ? h("a", { href: item.docs, rel: "noreferrer" }, item.operator) : item.operator) : null, " ",
      item.unverified ? pill(`${count(item.unverified)} unverified`, "warn", "From addresses that are not this crawler’s: forwarded like visitors") : null),
    h("td", { class: "got", "data-label": "Responses" }, got(item)),
    h("td", { class: "number", "data-label": "Requests" }, count(item.requests)),
    h("td", { class: "number", "data-label": "Median" }, duration(item.median_seconds)),
    h("td", { class: "number", "data-label": "95 %" }, duration(item.p95_seconds)),
    h("td", { class: "number", "data-label": "Last" }, moment(item.last)),
    h("td", { class: "tops", "data-label": "Top pages" }, item.pages.slice(0, 2).map((page) =>
      h("a", { class: "cut", href: pageOf({ ...page, target: page.url }) }, path(page.url)))));
}

function got(item) {
  const parts = GOT.filter(([name]) => item[name]);
  return [
    h("span", { class: "shares", "aria-hidden": "true" }, parts.map(([name, , , tone]) => {
      const share = h("span", { class: tone });
      share.style.setProperty("--share", item[name] / item.requests);
      return share;
    })),
    h("span", {}, parts.map(([name, noun, plural]) => counted(item[name], noun, `${noun}${plural}`)).join(", ")),
  ];
}
