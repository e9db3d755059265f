// Snapshots: all snapshots in the store, and actions on them.

import * as api from "./api.js";
import { bytes, confirm, count, counted, duration, h, moment, pill, statePill, statusPill, toast, variantPills } from "./dom.js";
import { list, STATUSES } from "./tables.js";

const STATES = [["", "Any state"], ["fresh", "Fresh"], ["stale", "Stale"]];
const AGES = [
  ["", "Any age"], ["0-600", "Under 10 minutes"], ["600-3600", "10 minutes to an hour"], ["3600-86400", "An hour to a day"],
  ["86400-", "Over a day"],
];

export async function snapshots(root, here, signal) {
  document.title = "Snapshots · Prerender";
  const chosen = new Map();
  let isBusy = false;
  const told = h("span", { class: "dim" });
  const lead = h("p", { class: "lead" });
  const buttons = [
    h("button", { type: "button", onclick: () => alone(() => each("Rendering", render)) }, "Render now"),
    h("button", { type: "button", onclick: () => purge(true) }, "Mark stale"),
    h("button", { type: "button", class: "danger", onclick: () => purge(false) }, "Purge"),
  ];
  const all = h("input", {
    type: "checkbox", "aria-label": "Select all shown",
    onchange() {
      for (const one of shown.body.querySelectorAll("input[type=checkbox]")) {
        if (one.checked !== all.checked) one.click();
      }
    },
  });
  const shown = list({
    here, signal,
    defaults: { sort: "age", order: "asc" },
    filters: [
      { name: "search", label: "Search", placeholder: "Part of the URL or title" },
      { name: "state", label: "State", options: STATES },
      { name: "status", label: "Status", options: STATUSES },
      { name: "age", label: "Age", options: AGES },
    ],
    columns: [
      { label: "", head: () => all, cell: box, class: "choose" },
      { label: "Page", sort: "path", first: "asc", heading: true, class: "page", cell: link },
      { label: "State", cell: (item) => [statePill(item.state), " ", item.problems ? pill(counted(item.problems, "problem"), "warn") : null] },
      { label: "Status", sort: "status", cell: (item) => statusPill(item.status) },
      { label: "Size", sort: "size", number: true, cell: (item) => bytes(item.size) },
      { label: "Settled in", sort: "seconds", number: true, cell: (item) => duration(item.seconds) },
      { label: "Rendered", sort: "age", first: "asc", number: true, cell: (item) => moment(item.stored) },
    ],
    load({ age, ...query }) {
      const [least, most] = (age || "-").split("-");
      return api.get("snapshots", { ...query, least_age: least, most_age: most }, signal);
    },
    arrived(found, isMore) {
      // Of more rows, none is chosen yet; others replace those that are shown.
      if (isMore) all.checked = false; else chosen.clear();
      tell();
      lead.textContent = found.complete ? "All snapshots in the store, of all replicas."
        : "The snapshots in the memory of this process. This store cannot list the others.";
    },
    key: (found) => `, ${bytes(found.size)} of HTML`,
    empty: "No matching snapshots.",
    before: h("div", { class: "actions" }, told, buttons),
  });

  function box(item) {
    return h("input", {
      type: "checkbox", "aria-label": ["Select", item.path, item.device === "mobile" ? "phone" : "", item.language, item.format].filter(Boolean).join(" "),
      onchange(event) {
        const name = `${item.id} ${item.format}`;
        if (event.target.checked) chosen.set(name, item); else chosen.delete(name);
        tell();
      },
    });
  }

  function tell() {
    if (!isBusy) told.textContent = chosen.size ? `${count(chosen.size)} selected` : "";
    for (const button of buttons) button.disabled = isBusy || !chosen.size;
    if (!chosen.size) all.checked = false;
  }

  /** One action at a time: a second click would do everything twice. */
  async function alone(act) {
    isBusy = true;
    tell();
    try { await act(); } finally {
      isBusy = false;
      tell();
    }
    await shown.reload();
  }

  async function each(what, act) {
    const items = [...chosen.values()];
    let failed = 0;
    for (const [index, item] of items.entries()) {
      told.textContent = `${what} ${index + 1} of ${items.length}`;
      try { await act(item); } catch (error) { failed++; toast(`${item.path}: ${error.message}`, "bad"); }
      if (signal.aborted) return;
    }
    toast(`${what}: ${count(items.length - failed)} done${failed ? `, ${failed} failed` : ""}.`, failed ? "bad" : "good");
  }

  async function render(item) {
    const made = await api.post("render", { id: item.id });
    if (!made.stored) throw new Error(`the new snapshot was not stored${made.detail ? ` (${made.detail})` : ""}`);
  }

  async function purge(soft) {
    const items = [...chosen.values()];
    if (!soft && !await confirm("Purge snapshots", `${counted(items.length, "snapshot")} will be removed. The next request for each page renders it.`, "Purge")) return;
    await alone(async () => {
      try {
        // A purge is of a page, with all its variants.
        const done = await api.post("purge", { url: items.map((item) => item.url), soft, count: true });
        toast(`${counted(done.snapshots ?? items.length, "snapshot")} ${soft ? "marked stale" : "purged"}.`);
      } catch (error) { toast(error.message, "bad"); }
    });
  }

  async function purgeAll() {
    if (!await confirm("Mark all snapshots stale", "With [cache] stale, each is served until it has been rendered again. Otherwise the next request renders it.", "Mark all stale")) return;
    try { await api.post("purge", { all: true, soft: true }); toast("All snapshots are stale."); } catch (error) { toast(error.message, "bad"); }
    await shown.reload();
  }

  root.append(h("div", { class: "heading" }, h("h1", {}, "Snapshots"),
    h("button", { type: "button", class: "quiet", onclick: purgeAll }, "Mark all stale …")),
  lead, shown.element);
  tell();
  await shown.first();
}

function link(item) {
  return [h("a", { href: `#/page/${item.id}?url=${encodeURIComponent(item.url)}` },
    h("span", { class: "path" }, item.path), item.title ? h("span", { class: "dim title" }, item.title) : null),
  variantPills(item)];
}
