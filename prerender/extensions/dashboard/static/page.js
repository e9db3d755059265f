// One page: its snapshot, requests, last render and versions.

import * as api from "./api.js";
import { linkPreview, searchResult, structuredData } from "./cards.js";
import { decisions } from "./decisions.js";
import { bytes, card, confirm, counted, duration, facts, h, moment, nothing, pill, replace, statePill, statusPill, toast, variantPills } from "./dom.js";
import { comparison, passages } from "./comparison.js";
import { visits } from "./visits.js";
import { waterfall } from "./waterfall.js";
import { path } from "./words.js";

const PHASES = [
  ["queue", "Queue"], ["document", "Document"], ["settle", "Settle"], ["serialize", "Serialize"],
];

export async function page(root, here, signal) {
  let id = here.rest[0] || "";
  let asked = here.query.get("url") || "";
  if (!id) ({ id, url: asked } = await api.get("pages", { url: asked }, signal));
  const show = async () => {
    let found;
    try {
      found = await api.get(`snapshots/${encodeURIComponent(id)}`, {}, signal);
    } catch (error) {
      if (error.status !== 404 || !asked) throw error;
      found = { id, url: asked, snapshot: null, reading: null, render: null, versions: [] };
    }
    document.title = `${found.reading?.title || found.url} · Prerender`;
    replace(root, ...parts(found, asked, show, signal));
    return found;
  };
  await show();
}

function parts(found, asked, again, signal) {
  const { snapshot, reading, render, versions } = found;
  const url = found.url || asked;
  const two = (...cards) => h("div", { class: "two" }, cards);
  const rows = [];
  if (snapshot) rows.push(comparison(found, signal));
  rows.push(visits(url, signal), decisions(url, signal));
  if (snapshot) rows.push(two(searchResult(found), linkPreview(found, signal)));
  if (render?.fetches.length) rows.push(waterfall(render));
  rows.push(two(render ? rendered(render, snapshot) : null, snapshot ? response(snapshot) : null));
  rows.push(two(snapshot ? structuredData(found) : null, versions.length ? history(found, signal) : null));
  const body = h("div", { class: "rows-of-cards" }, rows);
  const sections = [...body.querySelectorAll("section[id]")];
  return [
    h("div", { class: "heading page-heading" },
      h("div", {}, h("p", { class: "crumb" }, h("a", { href: "#/snapshots" }, "Snapshots"), " / page"),
        h("h1", { tabindex: -1 }, reading?.title || path(url)),
        h("p", { class: "address" }, h("a", { href: safe(url), rel: "noreferrer noopener", target: "_blank" }, url,
          h("span", { class: "unseen" }, " (opens the site)"))),
        h("p", { class: "marks" }, marks(found))),
      h("div", { class: "actions" }, actions(url, snapshot, again))),
    h("nav", { class: "jump", "aria-label": "Sections" },
      sections.map((section) =>
        h("button", { type: "button", onclick: () => jump(section) }, section.querySelector("h2").textContent))),
    snapshot || render ? null : h("p", { class: "banner warn" }, "No snapshot of this page is stored, and none was rendered recently."),
    body,
  ];
}

function jump(section) {
  section.setAttribute("tabindex", "-1");
  section.focus({ preventScroll: true });
  section.scrollIntoView({ block: "start" });
}

/** Only http(s) URLs: a crafted URL must not run as a script. */
const safe = (url) => (/^https?:\/\//.test(url) ? url : "#");

function marks({ snapshot, render }) {
  if (!snapshot) return [pill("Not stored", "warn"), render?.error ? pill(`Last render failed: ${render.reason}`, "bad", render.reason) : null];
  return [
    statusPill(snapshot.status), statePill(snapshot.state), variantPills(snapshot),
    render?.error ? pill(`Last render failed: ${render.reason}`, "bad", render.reason) : null,
    snapshot.problems ? pill(counted(snapshot.problems, "problem"), "warn") : null,
    h("span", { class: "dim" }, "rendered ", moment(snapshot.rendered), ", ",
      snapshot.state === "stale" ? "expired " : "expires ", moment(snapshot.expires), `, ${bytes(snapshot.size)}`),
  ];
}

function actions(url, snapshot, again) {
  const button = (label, act, properties = {}) => h("button", {
    type: "button", ...properties,
    async onclick(event) {
      const pressed = event.currentTarget;
      pressed.disabled = true;
      try { await act(); } catch (error) { toast(error.message, "bad"); }
      pressed.disabled = false;
      // It lost the focus, and may have been replaced.
      if (document.activeElement !== document.body) return;
      const places = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".page-heading .actions button, .page-heading h1")]);
      (places.find((one) => one.textContent === label) || places[0])?.focus();
    },
  }, label);
  return [
    button("Render now", async () => {
      let made = null;
      let problem = "";
      try { made = await api.post("render", snapshot ? { id: snapshot.id } : { url }); } catch (error) { problem = error.message; }
      const found = await again();
      toast(...told(made, problem, found));
    }, { class: "primary" }),
    snapshot ? button("Mark stale", async () => {
      await api.post("purge", { url, soft: true });
      toast("Marked stale: the next request renders it again.");
      await again();
    }) : null,
    snapshot ? button("Purge", async () => {
      if (!await confirm("Purge this snapshot", "The snapshot will be removed. The next request renders the page.", "Purge")) return;
      await api.post("purge", { url });
      toast("Purged.");
      await again();
    }, { class: "danger" }) : null,
  ];
}

/** What became of a render: the text and the tone of a toast. */
function told(made, problem, { snapshot, render }) {
  if (made?.stored) return [`Rendered in ${duration(made.seconds)} and stored.`, "good"];
  if (made && !made.detail) return [`Rendered in ${duration(made.seconds)}, not stored: pages like this are not cached.`, "warn"];
  const why = problem || (render?.error ? render.reason : render?.why) || made.detail;
  return [`Not rendered: ${why}; ${snapshot ? "the old snapshot is kept" : "no snapshot is stored"}.`, "bad"];
}

function rendered(render, snapshot) {
  const most = Math.max(...Object.values(render.phases), 0.001);
  return card("Last render", { id: "render", note: render.error && snapshot ? "It failed; the snapshot is older." : undefined },
    facts([
      ["When", moment(render.time)],
      ["Duration", duration(render.seconds)],
      render.error ? null : ["Verdict", pill(render.verdict, render.verdict === "complete" ? "good" : "bad"), " ", render.why],
      render.error
        ? ["Failed", render.reason]
        : ["Settled because", render.settled_text || "the page has no scripts"],
      render.error ? null : ["Virtual time", `${duration(render.virtual_seconds)} in ${duration(render.phases.settle)} of real time`],
    ]),
    PHASES.some(([name]) => render.phases[name]) ? phases(render, most) : null,
    h("h3", {}, "Console errors"),
    render.errors.length
      ? h("ul", { class: "errors" }, render.errors.map((error) => h("li", {}, error)))
      : h("p", { class: "dim" }, "No errors."));
}

function phases(render, most) {
  return [h("h3", {}, "Phases"),
    h("ul", { class: "phases" }, PHASES.map(([name, label]) => {
      const bar = h("span", { class: `bar ${name}` });
      bar.style.setProperty("--share", render.phases[name] / most);
      return h("li", {}, h("span", {}, label), h("span", { class: "track", "aria-hidden": "true" }, bar),
        h("span", { class: "number" }, duration(render.phases[name])));
    }))];
}

function response(snapshot) {
  return card("Response", { id: "response", note: "The headers that crawlers get, without those of a single response (Cache-Status, Date)." },
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Response headers" },
      h("table", { class: "fields" }, h("tbody", {},
        h("tr", {}, h("th", { scope: "row" }, "Status"), h("td", {}, statusPill(snapshot.status))),
        snapshot.headers.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)))))),
    facts([
      ["Ugly URL", h("code", {}, snapshot.ugly_url)],
      ["Sizes", snapshot.encodings.map((one) => `${one.coding} ${bytes(one.size)}`).join(", ")],
      snapshot.renewal ? ["Renewed without rendering", renewed(snapshot)] : null,
      ["Content changed", moment(snapshot.last_modified)],
      snapshot.tags.length ? ["Cache tags", snapshot.tags.join(", ")] : null,
      snapshot.refusals ? ["Worse snapshots refused", counted(snapshot.refusals, "time")] : null,
    ]),
    h("p", {}, h("a", { href: api.url(`snapshots/${snapshot.id}/html`), target: "_blank" }, "HTML of the snapshot",
      h("span", { class: "unseen" }, " (opens as plain text)"))));
}

function renewed({ rendered: since, renewal: { count, always_rendered_because: why } }) {
  const times = count ? [counted(count, "time"), " since ", moment(since)] : [];
  return why ? [...times, times.length ? ", no longer: " : "Never: ", why] : times.length ? times : "Not yet";
}

function history({ id, versions }, signal) {
  const result = h("div", { class: "difference", "aria-live": "polite" });
  const name = (version) => `${new Date(version.time * 1000).toLocaleString()}, ${version.status}, ${counted(version.characters, "character")}`;
  const choose = (label, initial) => {
    const field = h("select", { id: `version-${label}`, onchange: compare },
      versions.map((version, index) => h("option", { value: index, selected: index === initial }, name(version))));
    return [h("label", { for: field.id }, label), field];
  };
  const [oldLabel, older] = choose("From", Math.min(1, versions.length - 1));
  const [newLabel, newer] = choose("To", 0);
  async function compare() {
    try {
      const found = await api.get(`snapshots/${id}/history`, { old: older.value, new: newer.value }, signal);
      replace(result, passages(found, "removed", "added"));
    } catch (error) { if (!signal.aborted) replace(result, nothing(error.message)); }
  }
  const section = card("History", { id: "history", note: "The text of the last versions. Each change of the content adds a version." },
    h("ol", { class: "versions" }, versions.map((version, index) => h("li", {},
      moment(version.time), " ", statusPill(version.status), " ", h("span", {}, version.title || "no title"), " ",
      h("span", { class: "dim" }, `${bytes(version.size)}${index ? "" : ", the newest"}`)))),
    versions.length > 1 ? [h("div", { class: "filters" }, h("div", { class: "field" }, oldLabel, older),
      h("div", { class: "field" }, newLabel, newer)), result] : h("p", { class: "dim" }, "Only one version so far."));
  if (versions.length > 1) compare();
  return section;
}
