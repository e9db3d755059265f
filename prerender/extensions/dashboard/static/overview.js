// Overview: the last hour, live.

import * as api from "./api.js";
import { bots } from "./bots.js";
import { crawlers } from "./crawlers.js";
import { bars, minutes, spark } from "./charts.js";
import { jobsCard, load } from "./jobs.js";
import { isOver } from "./problems.js";
import { answerPill, bytes, card, count, counted, duration, facts, h, isSelected, moment, nothing, percent, pill, replace, statusPill } from "./dom.js";
import { pageOf, path, PRESETS, requesterName, WANTED } from "./words.js";

const EVERY_MS = 5000;
const ANSWERS = [
  ["hit", "Hits"], ["stale", "Stale hits"], ["revalidated", "Not changed"], ["miss", "Rendered"], ["coalesced", "Shared renders"],
  ["kept", "Old snapshot kept"], ["error", "Failed"],
];
const PHASES = [
  ["queue", "Queue"], ["document", "Document"], ["settle", "Settle"],
  ["serialize", "Serialize"],
];
const OUTCOMES = [
  ["complete", "Complete"], ["moved", "Moved"], ["cut_off", "Cut off"], ["redirect", "Redirects"],
  ["incomplete", "Incomplete"], ["failed", "Failed"], ["blank", "Blank"], ["not_a_page", "Not a page"], ["cancelled", "Cancelled"],
];
const UNUSABLE = ["incomplete", "failed", "blank"];

export async function overview(root, here, signal) {
  document.title = "Overview · Prerender";
  const body = h("div", {});
  root.append(h("h1", {}, "Overview"), body);
  let last = null;
  let period = "hour";
  const draw = () => {
    const before = kept(body);
    body.dataset.columns = columns(body);
    replace(body, ...parts(last, chartWidth(body), [crawlers(last.came, period, choose, last.earlier), bots(last.unknown)],
      jobsCard(last.background, show)));
    restore(body, before);
  };
  // An open list of choices would close, and a selected text would no longer be.
  const isInUse = () => Boolean(body.querySelector("select:focus")) || isSelected(body);
  const update = async () => {
    const [summary, recent, worst, hour, came, unknown, background] = await Promise.all([
      api.get("summary", {}, signal), api.get("requests", { limit: 8 }, signal), api.get("problems", {}, signal),
      api.get("crawlers", {}, signal), api.get("crawlers", { period }, signal),
      api.get("bots", {}, signal), load(signal),
    ]);
    // The figures of the last hour are this process's. What was before it is in the report.
    const earlier = summary.now - summary.started < 3600 ? await api.get("report/recent", {}, signal).catch(() => null) : null;
    last = { summary, recent, worst, hour, came, unknown, earlier, background };
  };
  const choose = (value) => {
    period = value;
    show().catch(failed);
  };
  const failed = (error) => signal.aborted || body.prepend(lost(body, error));
  const show = async () => {
    await update();
    draw();
  };
  await show();
  const timer = setInterval(() => {
    if (!document.hidden) update().then(() => isInUse() || draw()).catch(failed);
  }, EVERY_MS);
  addEventListener("resize", draw, { signal });
  signal.addEventListener("abort", () => clearInterval(timer));
}

const CONTROLS = "a, button, summary, [tabindex]";

/** What a person has focused, opened and scrolled, by names that stay when rows come and go. */
function kept(body) {
  const focused = document.activeElement;
  const found = { focused: "", card: "", opened: new Set(), scrolled: new Map() };
  for (const one of body.querySelectorAll(CONTROLS)) {
    const name = nameOf(one);
    if (one === focused) Object.assign(found, { focused: name, card: cardOf(one) });
    if (one.parentElement.open) found.opened.add(name);
    if (one.scrollTop || one.scrollLeft) found.scrolled.set(name, [one.scrollLeft, one.scrollTop]);
  }
  return found;
}

function restore(body, { focused, card: within, opened, scrolled }) {
  const controls = [...body.querySelectorAll(CONTROLS)];
  for (const one of controls) {
    const name = nameOf(one);
    if (one.matches("summary")) one.parentElement.open = opened.has(name);
    if (scrolled.has(name)) one.scrollTo(...scrolled.get(name));
  }
  if (!focused) return;
  // Of a row that is gone, the card remains.
  const again = controls.find((one) => nameOf(one) === focused) || controls.findLast((one) => cardOf(one) === within);
  again?.focus({ preventScroll: true });
}

const cardOf = (control) => control.closest(".card")?.querySelector("h2").textContent || "";

function nameOf(control) {
  const row = control.closest("tr")?.querySelector("th .cut, th .whole, th a") || control.closest("li")?.querySelector("a");
  const own = control.getAttribute("href") || control.getAttribute("aria-label") || control.firstChild?.textContent;
  return JSON.stringify([cardOf(control), row?.textContent, own]);
}

function lost(body, error) {
  body.querySelector(".lost")?.remove();
  return h("p", { class: "banner bad lost", role: "alert" }, error.message);
}

/** The number of charts in a row. They are drawn in pixels, so that their labels keep their size. */
const columns = (body) => (body.clientWidth >= 900 ? 2 : 1);
const CARD_PADDING = 42;

function chartWidth(body) {
  const each = (body.clientWidth - (columns(body) - 1) * 20) / columns(body);
  return Math.max(240, Math.floor(each) - CARD_PADDING);
}

function parts({ summary, recent, worst, hour: asking, earlier }, width, came, jobs) {
  const hour = minutes(summary);
  const sum = (name) => hour.reduce((total, minute) => total + (minute[name] || 0), 0);
  const shown = ANSWERS.reduce((total, [name]) => total + sum(name), 0);
  const missed = withoutSnapshot(asking);
  const hits = sum("hits");
  const renders = OUTCOMES.reduce((total, [name]) => total + sum(name), 0);
  const phases = PHASES.reduce((total, [name]) => total + sum(name), 0);
  const failures = UNUSABLE.reduce((total, name) => total + sum(name), 0);
  const per = (minute, top, bottom) => (bottom(minute) ? top(minute) / bottom(minute) : null);
  const asked = (minute) => ANSWERS.reduce((total, [name]) => total + (minute[name] || 0), 0);
  const timed = sum("timed");
  return [
    ...summary.notices.map(notice),
    verdict(summary, worst, missed, { shown, failed: sum("error"), renders, failures, cutOff: sum("cut_off"), earlier }),
    passedOver(asking, missed),
    h("div", { class: "tiles" },
      tile("Hit rate", percent(hits, shown), `${count(hits)} of ${counted(shown, "snapshot")} served from the cache`,
        hour.map((minute) => per(minute, (m) => m.hits || 0, asked))),
      tile("Requests for snapshots", count(shown), `and ${count(sum("forward"))} forwarded to the origin`,
        hour.map(asked)),
      tile("Response time", asking.items.length ? duration(asking.median_seconds) : "–",
        asking.items.length ? `median; 95 % within ${duration(asking.p95_seconds)}` : "no crawlers in the last hour",
        hour.map((minute) => per(minute, (m) => m.seconds || 0, asked))),
      tile("Renders", count(renders), timed ? `${duration(phases / timed)} each` : renders ? "none was completed" : "none in the last hour",
        hour.map((minute) => OUTCOMES.reduce((total, [name]) => total + (minute[name] || 0), 0))),
      tile("Failed or cut off", count(failures + sum("cut_off")),
        `${count(sum("incomplete"))} incomplete, ${count(sum("failed"))} failed, ${count(sum("blank"))} blank, ${count(sum("cut_off"))} cut off`,
        hour.map((minute) => [...UNUSABLE, "cut_off"].reduce((total, name) => total + (minute[name] || 0), 0)), failures ? "bad" : ""),
      tile("Server errors", count(sum("errors")), "5xx responses, including the origin’s",
        hour.map((minute) => minute["errors"] || 0), sum("errors") ? "bad" : "")),
    ...came,
    jobs,
    h("div", { class: "two" }, latest(recent), troubles(worst)),
    h("div", { class: "charts" },
      card("Responses to crawlers", {}, bars("Responses to crawlers", hour, series(ANSWERS), count, width)),
      card("Renders by outcome", {}, bars("Renders by outcome", hour, series(OUTCOMES), count, width)),
      card("Render time by phase", {}, bars("Render time by phase", hour,
        PHASES.map(([name, label]) => ({
          name, label, value: (minute) => (minute.timed ? (minute[name] || 0) / minute.timed : 0),
        })), duration, width)),
      machine(summary)),
  ];
}

/** The crawlers to mention: none if all are of classes that are seldom wanted, or have a setting of their own. */
function withoutSnapshot({ items }) {
  const missed = items.filter((one) => one.without_snapshot && one.preset);
  return missed.some((one) => WANTED.includes(one.preset)) ? missed : [];
}

const series = (names) => names.map(([name, label]) => ({ name, label, value: (minute) => minute[name] || 0 }));

function tile(name, value, note, line, tone = "") {
  return h("section", { class: `card tile ${tone}` }, h("h2", {}, name), h("p", { class: "value" }, value),
    h("p", { class: "note" }, note), spark(line));
}

function verdict(summary, worst, missed, { shown, failed, renders, failures, cutOff, earlier }) {
  const wrong = [];
  if (!summary.ready) wrong.push("no browser is running");
  if (!summary.store.available) wrong.push("the store is unavailable");
  if (summary.pool.waiting > summary.pool.queue_limit / 2) wrong.push("the queue is more than half full");
  if (failed > shown / 50) wrong.push(`${counted(failed, "request")} got no snapshot`);
  if (failures > renders / 20) wrong.push(`${counted(failures, "render")} failed`);
  if (cutOff > renders / 10) wrong.push(`${counted(cutOff, "render was", "renders were")} cut off`);
  const uptime = `up for ${duration(summary.now - summary.started)}, version ${summary.version}`;
  if (wrong.length) {
    const last = Math.max(0, ...worst.failing.map((page) => page.last_problem));
    return h("p", { class: "banner bad" }, h("a", { href: "#/problems" }, h("strong", {}, "Problems: "), wrong.join("; ")),
      last ? [". Last failure: ", moment(last)] : null, h("small", {}, uptime));
  }
  return h("p", { class: "banner good" }, h("strong", {}, "Healthy. "), healthy(shown, missed, earlier), h("small", {}, uptime));
}

function healthy(shown, missed, earlier) {
  const before = (earlier?.items || []).reduce((total, one) => total + one.requests, 0);
  if (!shown && before) return ["No requests for snapshots since the start; ", counted(before, "request"), " of crawlers since ", moment(earlier.since), "."];
  if (missed.length) return shown ? "Requests for snapshots are served." : "No requests for snapshots in the last hour.";
  return shown ? "Crawlers get snapshots." : "No crawler requests in the last hour.";
}

/** Known crawlers that got pages without snapshots, because [triggers] forwards their class. */
function passedOver(asking, missed) {
  if (!missed.length) return null;
  const known = asking.items.filter((one) => one.crawler).reduce((sum, one) => sum + one.requests, 0);
  const without = missed.reduce((sum, one) => sum + one.without_snapshot, 0);
  const wanted = missed.filter((one) => WANTED.includes(one.preset));
  const preset = PRESETS.findLast((one) => wanted.some((other) => other.preset === one));
  return h("p", { class: "banner warn" },
    h("a", { href: "#/requests?decision=forward" },
      `${count(without)} of ${counted(known, "request")} of known crawlers got the page without a snapshot`),
    `, because [triggers] forwards them: ${names(missed)}. To serve them snapshots, set `, h("code", {}, `PRERENDER_TRIGGERS_PRESET=${preset}`),
    " (", h("code", {}, `preset = "${preset}"`), " in [triggers]); to leave it so, set their class to ", h("code", {}, "forward"), ".");
}

const names = (missed) => missed.slice(0, 5).map((one) => one.name).join(", ") + (missed.length > 5 ? ", …" : "");

function notice({ consequence, remedy, seen }) {
  return h("p", { class: "banner warn" }, h("strong", {}, "Configuration: "), `${consequence}. To fix it, ${remedy}. `,
    h("small", {}, "last seen ", moment(seen)));
}

function machine({ pool, store }) {
  const slots = Array.from({ length: pool.size }, (_, index) => h("span", { class: index < pool.busy ? "slot busy" : "slot" }));
  return card("Browser and store", { class: "machine" },
    h("div", { class: "slots", role: "img", "aria-label": `${pool.busy} of ${pool.size} pages busy` }, slots),
    facts([
      ["Pages", `${count(pool.busy)} busy, ${count(pool.idle)} idle of ${count(pool.size)}`],
      ["Queue", `${count(pool.waiting)} of ${count(pool.queue_limit)} waiting`],
      ["Browser memory", bytes(pool.memory)],
      ["Browsers started", count(pool.browsers_started)],
      ["Store", `${store.kind} `, store.available ? pill("available", "good") : pill("unavailable", "bad")],
      ["Snapshots in memory", `${count(store.in_memory)}, ${bytes(store.memory)}`],
      store.faults ? ["Store errors", count(store.faults)] : null,
    ]));
}

function latest({ items }) {
  return card("Latest requests", { class: "latest" },
    items.length ? h("ul", { class: "rows" }, items.map((item) => h("li", {},
      h("a", { class: "cut", href: item.target.startsWith("/") ? pageOf(item) : "#/requests" },
        item.url ? path(item.url) : item.target),
      h("span", { class: "marks" }, h("span", { class: "dim cut" }, requesterName(item)), answerPill(item), statusPill(item.status),
        h("span", { class: "dim" }, duration(item.seconds)), h("span", { class: "dim" }, moment(item.time))))))
      : nothing("No crawler requests yet."),
    h("footer", {}, h("a", { href: "#/requests" }, "All requests")));
}

function troubles(worst) {
  const pages = [...worst.failing, ...worst.cut_off, ...worst.troubled].filter((item) => !isOver(item)).slice(0, 8);
  return card("Pages with problems", { class: "latest troubles" },
    pages.length ? h("ul", { class: "rows" }, pages.map((item) => h("li", {},
      h("a", { class: "cut", href: pageOf(item) }, path(item.url)),
      h("span", { class: "cut dim", title: item.reason }, item.failing_since ? ["failing since ", moment(item.failing_since), ": "] : null, item.reason))))
      : nothing("No problems now."),
    h("footer", {}, h("a", { href: "#/problems" }, "All problems")));
}
