// Jobs, which render lists of pages, and the sitemaps that are watched. Shown if there are any.

import * as api from "./api.js";
import { card, confirm, count, counted, h, moment, pill, toast } from "./dom.js";
import { path } from "./words.js";

const MOST = 5;
const STATES = { reading: ["Reading its list", "info"], running: ["Running", "info"], done: ["Done", "good"], cancelled: ["Cancelled", "plain"] };
const OUTCOMES = {
  rendered: ["rendered"], fresh: ["fresh"], kept: ["old snapshot kept", "warn"], redirected: ["redirected"],
  not_stored: ["not stored", "warn"], missing: ["missing", "warn"], not_a_page: ["not a page", "warn"], failed: ["failed", "bad"], invalid: ["invalid", "warn"],
};

export async function load(signal) {
  const [jobs, sitemaps] = await Promise.all([
    api.get("jobs", {}, signal).catch(() => ({ items: [] })), api.get("sitemaps", {}, signal).catch(() => ({ watched: false })),
  ]);
  return { jobs, sitemaps };
}

export function jobsCard({ jobs: { items, kept_in: keptIn }, sitemaps }, update) {
  if (!items.length && !sitemaps.watched) return null;
  const busy = items.filter((job) => !job.ended);
  const shown = [...busy, ...items.filter((job) => job.ended)].slice(0, MOST);
  const note = keptIn === "memory" ? "Kept in memory: jobs end with the process." : null;
  return card("Jobs and sitemaps", { class: "jobs", note },
    sitemaps.watched ? watched(sitemaps) : null,
    shown.length ? h("ul", { class: "rows" }, shown.map((job) => row(job, update))) : null,
    items.length > shown.length ? h("footer", {}, h("a", { href: api.url("jobs") }, `All ${counted(items.length, "job")} (JSON)`)) : null);
}

function watched({ time, next, sitemaps, pages, new: added, changed, gone, changed_at: changedAt, disallowed, notes }) {
  if (!time) return h("p", {}, "The sitemaps have not been read yet.");
  const wrong = [...notes, ...sitemaps.filter((one) => one.error).map((one) => one.error)];
  return h("div", {},
    h("p", {}, h("strong", {}, `${counted(sitemaps.length, "sitemap")}, ${counted(pages, "page")}`), ", read ", moment(time), ", next ", moment(next),
      changedAt ? [". Last change ", moment(changedAt), `: ${count(added)} new, ${count(changed)} changed, ${count(gone)} gone`] : null,
      disallowed ? `. ${count(disallowed)} disallowed by robots.txt` : null, "."),
    wrong.map((text) => h("p", { class: "marks" }, pill("Problem", "bad"), h("span", { class: "dim" }, text))));
}

function row(job, update) {
  const done = job.pages - job.waiting;
  const what = job.source === "sitemaps" ? "Changes of the sitemaps" : job.sitemaps.map(path).join(", ") || counted(job.pages, "page");
  return h("li", {},
    h("div", {}, h("a", { href: api.url(`jobs/${job.id}/pages`) }, what), " ", h("span", { class: "dim" }, moment(job.created)),
      job.note ? h("p", { class: "dim" }, job.note) : null),
    h("div", { class: "marks" },
      job.ended ? null : h("progress", { max: job.pages || 1, value: done, "aria-label": `${done} of ${job.pages} pages` }),
      h("span", { class: "dim" }, `${count(done)} of ${count(job.pages)}`),
      Object.entries(job.outcomes).map(([name, number]) => pill(`${count(number)} ${OUTCOMES[name][0]}`, OUTCOMES[name][1] || "plain")),
      pill(...STATES[job.state]),
      job.ended ? null : h("button", { type: "button", class: "quiet", onclick: () => cancel(job, update) }, "Cancel")));
}

async function cancel(job, update) {
  if (!await confirm("Cancel the job?", "What it has rendered stays.", "Cancel the job")) return;
  try {
    await api.cancel(`jobs/${job.id}`);
    toast("The job is cancelled.");
    await update();
  } catch (error) {
    toast(error.message, "bad");
  }
}
