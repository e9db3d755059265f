// Report: what crawlers got over months, and what is wrong with the pages.

import * as api from "./api.js";
import { bars } from "./charts.js";
import { bytes, card, count, counted, duration, h, moment, nothing, percent, pill, replace } from "./dom.js";
import { moreButton } from "./tables.js";
import { CLASSES, pageOf, path } from "./words.js";

const PERIODS = [["7", "7 days"], ["28", "28 days"], ["90", "90 days"]];
const errors = (row) => row.not_found + row.client_errors + row.unavailable + row.server_errors;
const SERIES = [
  ["hit", "Fresh snapshots", (row) => row.fresh], ["stale", "Stale snapshots", (row) => row.stale],
  ["rendered", "Rendered", (row) => row.rendered], ["document", "Forwarded", (row) => row.forwarded],
  ["file", "Files", (row) => row.file], ["error", "Errors", errors], ["denied", "Refused", (row) => row.refused],
].map(([name, label, value]) => ({ name, label, value }));
const DAY_MS = 86400000;
const KEPT = { memory: "in memory, until this process ends", file: "in a file next to the snapshots", redis: "in Redis, of all replicas" };

/** Since when the figures of the report are, for the header. */
export function keptSince(kept) {
  if (kept.kept_in === "off") return "";
  return kept.since ? `figures since ${kept.since}` : "no figures yet";
}

export async function report(root, here, signal) {
  document.title = "Report · Prerender";
  const days = PERIODS.some(([value]) => value === here.query.get("days")) ? here.query.get("days") : "28";
  const get = (name, query = {}) => api.get(`report/${name}`, query, signal);
  const kept = await api.get("report", {}, signal);
  root.append(h("div", { class: "heading" }, h("h1", {}, "Report"), h("div", { class: "actions switch", role: "group", "aria-label": "Period" },
    PERIODS.map(([value, label]) => h("button", {
      type: "button", "aria-pressed": String(value === days), onclick: () => { location.hash = `#/report?days=${value}`; },
    }, label)))));
  if (kept.kept_in === "off") {
    root.append(nothing("No visits are kept: [visits] days is 0."));
  } else {
    root.append(h("p", { class: "lead" }, `Figures ${kept.since ? `since ${kept.since}` : "from now on"} (UTC), kept ${KEPT[kept.kept_in]}.`,
      kept.dropped ? ` ${counted(kept.dropped, "visit")} could not be kept.` : null));
    if (!kept.available) root.append(h("p", { class: "banner warn" }, "The store of the figures is away: the last visits are not in them yet."));
    const [byDay, crawlers, folders, failed] = await Promise.all([
      get("visits", { days, by: "day" }), get("visits", { days }), get("visits", { days, by: "folder" }),
      get("visits", { days, by: "crawler,folder", only: "errors" }),
    ]);
    const chart = h("div", {});
    root.append(card("Responses to crawlers by day", { class: "report-days" }, chart, links({ days, by: "day,crawler" })));
    const draw = () => replace(chart, drawing(byDay, Number(days), chart));
    draw();
    addEventListener("resize", draw, { signal });
    root.append(
      listing("By crawler", "", crawlers.items, [name("Crawler", "crawler"), ...VISITS], { days }),
      listing("By folder", "The first part of the path. Pages without a folder are in /.", folders.items, [text("Folder", "folder"), ...VISITS], { days, by: "folder" }),
      listing("Errors", "4xx and 5xx, by crawler and folder: the 20 with most.", failed.items.slice(0, 20), [name("Crawler", "crawler"), text("Folder", "folder"), ...ERRORS],
        { days, by: "crawler,folder", only: "errors" }),
      change(get, days), gap(get), pages(get));
  }
  root.append(snapshots(await get("snapshots")));
}

function drawing({ items, last }, days, chart) {
  const found = new Map(items.map((row) => [row.day, row]));
  const none = { day: "", fresh: 0, stale: 0, rendered: 0, forwarded: 0, file: 0, not_found: 0, client_errors: 0, unavailable: 0, server_errors: 0, refused: 0 };
  const points = Array.from({ length: days }, (_, index) => {
    const day = new Date(Date.parse(last) - (days - 1 - index) * DAY_MS).toISOString().slice(0, 10);
    return { ...none, ...found.get(day), day };
  });
  const ends = [points[0].day, points[Math.floor(days / 2)].day, "today"];
  return bars("Responses to crawlers", points, SERIES, count, Math.max(240, chart.clientWidth), { unit: "Day", ends, name: (point) => point.day });
}

const text = (label, key) => ({ label, heading: true, value: (row) => row[key] || "–" });
const name = (label, key) => ({ label, heading: true, value: (row) => [row[key], " ", row.kind ? pill(CLASSES[row.kind] || row.kind, "plain") : null] });
const number = (label, value) => ({ label, class: "number", value });
const VISITS = [
  number("Requests", (row) => count(row.requests)),
  number("Snapshots", (row) => percent(row.fresh + row.stale + row.rendered, row.requests)),
  number("Forwarded", (row) => count(row.forwarded + row.file)),
  number("4xx", (row) => count(row.not_found + row.client_errors)),
  number("5xx", (row) => count(row.unavailable + row.server_errors)),
  number("Bytes", (row) => bytes(row.bytes)),
  number("Median", (row) => duration(row.median_seconds)),
  number("95 %", (row) => duration(row.p95_seconds)),
];
const ERRORS = [
  number("404", (row) => count(row.not_found)), number("Other 4xx", (row) => count(row.client_errors)),
  number("503", (row) => count(row.unavailable)), number("Other 5xx", (row) => count(row.server_errors)),
  number("Share", (row) => percent(errors(row), row.requests)),
];

function table(title, items, columns) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.class }, column.label)))),
    h("tbody", {}, lines(items, columns))));
}

const lines = (items, columns) => items.map((row) => h("tr", {}, columns.map((column) => h(column.heading ? "th" : "td", {
  class: column.class, scope: column.heading ? "row" : null, "data-label": column.label,
}, column.value(row)))));

function links(query, from = "visits") {
  return h("footer", { class: "formats" }, ["csv", "json"].map((format) => [h("a", { href: api.url(`report/${from}`, { ...query, format }), download: `${from}.${format}` },
    format.toUpperCase()), " "]));
}

function listing(title, note, items, columns, query) {
  return card(title, { note, class: "listing" }, items.length ? table(title, items, columns) : nothing("None."), items.length ? links(query) : null);
}

function change(get, days) {
  const shown = h("div", {});
  const span = Math.min(28, Number(days));
  const field = h("input", { id: "change-date", type: "text", placeholder: "2026-03-31", spellcheck: "false", value: new Date(Date.now() - span * DAY_MS).toISOString().slice(0, 10) });
  const show = async () => {
    if (!field.value) return;
    const query = { date: field.value, days: span };
    try {
      const { items } = await get("change", query);
      replace(shown, items.length ? [table("Before and after", items, CHANGES), links(query, "change")] : nothing("No visits in both periods."));
    } catch (error) { replace(shown, nothing(error.message)); }
  };
  field.addEventListener("change", show);
  show();
  return card("Before and after", { note: `Requests in the ${span} days before a date, such as a deploy, and in the ${span} days from it.`, class: "listing" },
    h("div", { class: "filters" }, h("div", { class: "field" }, h("label", { for: "change-date" }, "Date"), field)), shown);
}

const against = (before, after) => [count(before), " → ", count(after), " ", before ? pill(`${after >= before ? "+" : "−"}${percent(Math.abs(after - before), before)}`, "plain") : null];
const CHANGES = [
  name("Crawler", "crawler"),
  number("Requests", (row) => against(row.requests_before, row.requests_after)),
  number("Errors", (row) => against(row.errors_before, row.errors_after)),
  number("Median", (row) => `${duration(row.median_before)} → ${duration(row.median_after)}`),
];

function gap(get) {
  const shown = h("div", {});
  const field = h("input", { id: "gap-sitemap", type: "text", value: "/sitemap.xml", spellcheck: "false" });
  const show = async (event) => {
    event.preventDefault();
    replace(shown, nothing("Reading the sitemap …"));
    const query = { sitemap: field.value };
    try {
      const found = await get("gap", { ...query, limit: 100 });
      replace(shown, h("p", { class: "count found" }, `${count(found.count)} of ${counted(found.known, "page")}`),
        found.items.length ? [table("Pages that nobody fetched", found.items, GAP), links(query, "gap")] : nothing("All of them have been fetched."));
    } catch (error) { replace(shown, nothing(error.message)); }
  };
  return card("Pages that nobody fetched", { note: "Pages of the sitemap that no search engine and no AI crawler has fetched, of the 100,000 pages with the last visits.", class: "listing gap" },
    h("form", { class: "filters", onsubmit: show }, h("div", { class: "field wide" }, h("label", { for: "gap-sitemap" }, "Sitemap"), field),
      h("button", { type: "submit" }, "Compare")), shown);
}

/** Pages, the longest unvisited first; more on demand. */
function pages(get) {
  const shown = h("div", {});
  const search = h("input", { id: "pages-search", type: "search", spellcheck: "false" });
  const kind = h("select", { id: "pages-kind" }, h("option", { value: "" }, "any"), Object.entries(CLASSES).map(([value, label]) => h("option", { value }, label)));
  let turn = 0;
  const show = async (event) => {
    event?.preventDefault();
    const mine = ++turn;
    const query = { search: search.value, unvisited_by: kind.value };
    const caption = h("p", { class: "count found", "aria-live": "polite" });
    const made = table("Pages and their last visits", [], PAGES);
    const body = made.querySelector("tbody");
    let next = null;
    const add = async () => {
      const found = await get("pages", { ...query, limit: 20, cursor: next });
      next = found.next;
      body.append(...lines(found.items, PAGES));
      caption.textContent = `${count(found.count)} of ${counted(found.known, "page")}`;
      more.hidden = !next;
    };
    const more = moreButton(body, caption, add);
    let problem = null;
    try { await add(); } catch (error) { problem = nothing(error.message); }
    if (mine !== turn) return; // another search was submitted
    replace(shown, problem || [caption, body.children.length ? [made, more, links(query, "pages")] : nothing("None.")]);
  };
  show();
  return card("Pages and their last visits", { note: "The longest unvisited first, of the 100,000 pages with the last visits.", class: "listing gap" },
    h("form", { class: "filters", onsubmit: show },
      h("div", { class: "field wide" }, h("label", { for: "pages-search" }, "Search"), search),
      h("div", { class: "field" }, h("label", { for: "pages-kind" }, "Never visited by"), kind),
      h("button", { type: "submit" }, "Show")), shown);
}

const link = (row) => h("a", { href: pageOf({ target: path(row.url) }) }, path(row.url));
const GAP = [{ label: "Page", heading: true, value: link }, number("Last visit", (row) => (row.last ? moment(row.last) : "never"))];
const PAGES = [GAP[0], { label: "Status", value: (row) => row.status || "–" }, GAP[1],
  { label: "By", value: (row) => Object.keys(row.kinds).map((kind) => [pill(CLASSES[kind] || kind, "plain"), " "]) }];
const FOUND = [{ label: "Page", heading: true, value: link }, { label: "Finding", value: (row) => pill(row.finding, "warn") }, { label: "Detail", value: (row) => row.detail || "–" }];

function snapshots(found) {
  return card("Stored snapshots", { note: `${count(found.snapshots)} stored, content of ${count(found.read)} read at the last render: noindex, titles, canonicals that name another page, little text, error statuses.`, class: "listing" },
    found.items.length ? [h("p", { class: "count found" }, counted(found.count, "finding")), table("Findings", found.items.slice(0, 100), FOUND), links({}, "snapshots")] : nothing("Nothing found."));
}
