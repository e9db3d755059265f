// Routing and login. The route is in the fragment: #/requests?search=lamp

import * as api from "./api.js";
import { h, nothing, replace, toast } from "./dom.js";
import { login } from "./login.js";
import { overview } from "./overview.js";
import { page } from "./page.js";
import { problems } from "./problems.js";
import { keptSince, report } from "./report.js";
import { requests } from "./requests.js";
import { snapshots } from "./snapshots.js";

const VIEWS = { overview, report, requests, snapshots, problems, page };
const main = document.getElementById("main");
let ending = new AbortController();

/** The current route: the view, the rest of the path, and the query. */
function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [name, ...rest] = path.split("/");
  return { name: VIEWS[name] ? name : "overview", rest, query: new URLSearchParams(query || "") };
}

async function show() {
  if (location.hash && !location.hash.startsWith("#/")) return; // the skip link
  ending.abort();
  ending = new AbortController();
  const here = place();
  const { signal } = ending;
  for (const link of document.querySelectorAll("nav a")) {
    const current = link.getAttribute("href") === `#/${here.name}`;
    if (current) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const root = h("div", { class: `view ${here.name}` });
  replace(main, root);
  try {
    await VIEWS[here.name](root, here, signal);
  } catch (error) {
    if (signal.aborted || error.status === 401) return;
    // A link with a filter or an id that does not exist fails each time.
    const [title, again] = [400, 404].includes(error.status)
      ? ["This link is not valid", h("a", { href: `#/${here.name === "page" ? "overview" : here.name}` }, "Show all")]
      : ["Something went wrong", h("button", { type: "button", onclick: show }, "Try again")];
    replace(root, h("h1", {}, title), nothing(error.message, again));
  }
}

function navigate() {
  show();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

async function start() {
  const session = await api.get("session");
  if (!session.open) return locked();
  document.getElementById("leave").hidden = !session.token_needed;
  document.body.classList.remove("locked");
  api.get("report").then((kept) => { document.getElementById("since").textContent = keptSince(kept); });
  api.get("summary").then((summary) => { document.getElementById("site").textContent = new URL(summary.site).host; });
  return show();
}

function locked() {
  ending.abort();
  document.body.classList.add("locked");
  login(main, start);
}

document.getElementById("open").addEventListener("submit", async (event) => {
  event.preventDefault();
  const input = /** @type {HTMLInputElement} */ (document.getElementById("open-url"));
  try {
    const found = await api.get("pages", { url: input.value.trim() });
    location.hash = `#/page/${found.id}?url=${encodeURIComponent(found.url)}`;
    input.value = "";
  } catch (error) {
    toast(error.message, "bad");
  }
});

document.getElementById("leave").addEventListener("click", async () => {
  await api.leave();
  locked();
});

const root = document.documentElement;
try { root.dataset.theme = localStorage.getItem("theme") || ""; } catch { /* no storage: system theme */ }
document.getElementById("theme").addEventListener("click", () => {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* not remembered */ }
});

addEventListener("locked", locked);
addEventListener("hashchange", navigate);
start().catch((error) => replace(main, nothing(error.message)));
