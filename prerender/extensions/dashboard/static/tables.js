// Lists with filters, sorting and more rows on demand. Their state is in the URL.

import { h, isSelected, nothing, replace } from "./dom.js";

/** A button that has add() append more rows to body. On an error, those that are there stay. */
export function moreButton(body, caption, add) {
  const button = h("button", {
    type: "button", class: "more",
    async onclick() {
      button.disabled = true;
      const at = body.children.length;
      let first = null;
      try {
        await add();
        first = body.children[at]?.querySelector("a, button, input");
      } catch (error) { caption.textContent = error.message; }
      button.disabled = false;
      // What is disabled loses the focus.
      if ([document.body, button].includes(document.activeElement)) (first || button).focus();
    },
  }, "Show more");
  return button;
}

/**
 * A list. columns: [{ name, label, sort, cell(item), number }]; filters: [{ name, label, options | type }];
 * load(query) fetches a page of it; arrived(found, isMore) is called before it is shown.
 */
export function list({ here, columns, filters, defaults, load, empty, signal, before = null, key = null, details = null, arrived = null }) {
  const values = { ...defaults, ...Object.fromEntries(here.query) };
  const caption = h("p", { class: "count", "aria-live": "polite" });
  const body = h("tbody", {});
  const more = moreButton(body, caption, () => fetchRows(next));
  let next = null;
  let turn = 0;
  let firstLines = 0;

  const heads = columns.map((column) => {
    const cell = h("th", { scope: "col", class: column.number ? "number" : null });
    if (!column.sort) cell.append(column.head ? column.head() : column.label);
    else {
      cell.append(h("button", {
        type: "button",
        onclick() {
          const same = values.sort === column.sort;
          values.order = same ? (values.order === "asc" ? "desc" : "asc") : column.first || "desc";
          values.sort = column.sort;
          reload();
        },
      }, column.label));
    }
    return cell;
  });

  const fields = filters.map((filter) => {
    const id = `filter-${filter.name}`;
    const field = filter.options
      ? h("select", { id }, filter.options.map(([value, label]) =>
        h("option", { value, selected: (values[filter.name] || "") === value }, label)))
      : h("input", { id, type: "search", value: values[filter.name] || "", placeholder: filter.placeholder, spellcheck: "false" });
    let typing = 0;
    field.addEventListener(filter.options ? "change" : "input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => { values[filter.name] = field.value; reload(); }, filter.options ? 0 : 250);
    });
    return h("div", { class: filter.options ? "field" : "field wide" }, h("label", { for: id }, filter.label), field);
  });

  function row(item) {
    const line = cells(item);
    if (!details) return line;
    const button = h("button", { type: "button", class: "quiet open", "aria-expanded": "false", onclick: toggle, "aria-label": `Details of ${line.querySelector("th").textContent.trim()}` }, "▸");
    line.append(h("td", { class: "more-cell" }, button));
    let opened = null;
    function toggle() {
      if (opened) opened.remove();
      opened = opened ? null : h("tr", { class: "opened" }, h("td", { colspan: columns.length + 1 }, details(item)));
      if (opened) line.after(opened);
      button.setAttribute("aria-expanded", String(Boolean(opened)));
    }
    return line;
  }

  function cells(item) {
    return h("tr", {}, columns.map((column) => h(column.heading ? "th" : "td", {
      class: [column.number ? "number" : "", column.class || ""].join(" ").trim() || null,
      "data-label": column.label, scope: column.heading ? "row" : null,
    }, column.cell(item))));
  }

  async function fetchRows(cursor) {
    const mine = ++turn;
    const query = Object.fromEntries(Object.entries(values).filter(([, value]) => value));
    let found;
    try { found = await load({ ...query, cursor }); } catch (error) {
      if (mine !== turn || signal.aborted) return;
      throw error;
    }
    if (mine !== turn || signal.aborted) return;
    arrived?.(found, Boolean(cursor));
    next = found.next;
    const rows = found.items.map(row);
    if (cursor) body.append(...rows); else replace(body, ...rows);
    if (!cursor) firstLines = rows.length;
    caption.textContent = describe(found, lines());
    more.hidden = !next;
    table.hidden = !body.children.length;
    blank.hidden = Boolean(body.children.length);
    columns.forEach((column, index) => {
      if (!column.sort) return;
      const sorted = values.sort === column.sort;
      heads[index].setAttribute("aria-sort", sorted ? (values.order === "asc" ? "ascending" : "descending") : "none");
    });
  }

  async function reload() {
    if (signal.aborted) return;
    const changed = Object.entries(values).filter(([name, value]) => value && value !== defaults[name]);
    history.replaceState(null, "", `#/${here.name}?${new URLSearchParams(changed)}`);
    try { await fetchRows(null); } catch (error) { caption.textContent = error.message; }
  }

  function describe(found, shown) {
    const all = new Intl.NumberFormat("en").format(found.count);
    const extra = key ? key(found) : "";
    return found.count > shown ? `${shown} of ${all}${extra}` : `${all} in total${extra}`;
  }

  const lines = () => body.querySelectorAll("tr:not(.opened)").length;
  const table = h("table", { class: "list" }, h("thead", {}, h("tr", {}, heads, details ? h("td", {}) : null)), body);
  const blank = nothing(empty);
  blank.hidden = true;
  const element = h("section", { class: "card listing" },
    h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, fields),
    h("div", { class: "bar" }, caption, before),
    h("div", { class: "scroll" }, table), blank, more);
  /** Whether new rows would disturb someone: who reads details or later rows, has selected a text, or is at a row by keyboard. */
  const isInUse = () => Boolean(body.querySelector(".opened")) || lines() > firstLines || body.contains(document.activeElement) || isSelected(body);
  return { element, reload, isInUse, first: () => fetchRows(null), body };
}

export const STATUSES = [
  ["", "Any status"], ["2", "2xx"], ["3", "3xx"], ["404", "404"], ["410", "410"], ["4", "4xx"], ["5", "5xx"],
];
