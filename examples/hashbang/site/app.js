// The shop: the state of the page is in its URL after "#!". This script renders it from JSON.
// A view is a plain object (title, description, content, ...); show() alone touches the document.
// Data becomes text nodes and attributes, never HTML source, so there is nothing to escape.

const SHOP = "Hashbang Goods";
const main = document.getElementById("main");
const money = new Intl.NumberFormat("en", { style: "currency", currency: "EUR" });
const inEuro = (cents) => money.format(cents / 100);

// ---- The state in the URL -------------------------------------------------------------------

const absolute = (state) => location.origin + (state ? `/#!${state}` : "/");
const itemState = ({ id }) => `/items/${id}`;

function searchState(q, sort) {
  if (!q) return "/search";
  return `/search?q=${encodeURIComponent(q)}${sort ? `&sort=${encodeURIComponent(sort)}` : ""}`;
}

function viewOf(state, signal) {
  const [path, query = ""] = state.split(/\?(.*)/s);
  const id = path.match(/^\/items\/(\d+)$/)?.[1];
  if (path === "" || path === "/") return landing(signal);
  if (path === "/items") return list(signal);
  if (id) return item(id, signal);
  if (path === "/search") return search(new URLSearchParams(query), signal);
  if (path === "/about") return about();
  return notFound("There is no such page in this shop.");
}

// ---- Data -----------------------------------------------------------------------------------

/** The JSON at a path, or null after a 404. Throws if the request fails. */
async function load(path, signal) {
  const response = await fetch(path, { signal });
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(`${path}: status ${response.status}`);
  return response.json();
}

// ---- Views ----------------------------------------------------------------------------------

async function landing(signal) {
  const { items } = await load("/api/items", signal);
  const favourites = items.sort((a, b) => b.rating - a.rating).slice(0, 4);
  return {
    state: "",
    title: SHOP,
    description: "Lamps, kitchen things, desk things and plant things, made to be kept.",
    content: [
      element("section", { class: "hero" },
        element("h1", {}, "Things made to be kept"),
        element("p", { class: "lead" },
          "Lamps, kitchen things, desk things and plant things: twelve of them, chosen with care."),
        element("a", { class: "button", href: "/#!/items" }, "See all items")),
      element("section", { "aria-labelledby": "favourites" },
        element("h2", { id: "favourites" }, "Favourites"),
        cards(favourites, "h3")),
    ],
  };
}

async function list(signal) {
  const { items } = await load("/api/items", signal);
  return {
    state: "/items",
    title: `All items · ${SHOP}`,
    description: `All ${items.length} items of ${SHOP}, with prices and ratings.`,
    content: [
      element("h1", {}, "All items"),
      element("p", { class: "lead" }, `${items.length} things made to be kept.`),
      cards(items, "h2"),
    ],
  };
}

async function item(id, signal) {
  const found = await load(`/api/items/${id}`, signal);
  if (!found) return notFound(`There is no item ${id}. It may have been sold for good.`);
  return {
    state: itemState(found),
    title: `${found.name} · ${SHOP}`,
    description: found.summary,
    jsonLd: productData(found),
    content: [
      breadcrumb(found),
      element("article", { class: "item" },
        picture(found),
        element("div", {},
          element("h1", {}, found.name),
          rating(found),
          element("p", { class: "price" }, inEuro(found.price_cents)),
          element("p", { class: found.in_stock ? "stock" : "stock sold-out" },
            found.in_stock ? "In stock" : "Sold out"),
          element("p", { class: "lead" }, found.summary),
          element("p", {}, found.description),
          element("dl", {}, ...Object.entries(found.facts).map(([name, value]) =>
            element("div", {}, element("dt", {}, name), element("dd", {}, value)))))),
      element("section", { "aria-labelledby": "related" },
        element("h2", { id: "related" }, "You may also like"),
        cards(found.related, "h3")),
    ],
  };
}

async function search(query, signal) {
  const q = (query.get("q") ?? "").trim();
  const sort = query.get("sort") ?? "";
  const parameters = new URLSearchParams({ q, sort });
  const { items } = q ? await load(`/api/search?${parameters}`, signal) : { items: [] };
  const count = items.length === 1 ? "1 result" : `${items.length || "No"} results`;
  const outcome = q ? `${count} for “${q}”` : "What are you looking for?";
  return {
    state: searchState(q, sort),
    title: q ? `Search: ${q} · ${SHOP}` : `Search · ${SHOP}`,
    description: q ? `${outcome} at ${SHOP}.` : `Search all items of ${SHOP}.`,
    content: [
      element("h1", {}, "Search"),
      searchForm(q, sort),
      element("p", { role: "status" }, outcome),
      cards(items, "h2"),
    ],
  };
}

function about() {
  return {
    state: "/about",
    title: `About · ${SHOP}`,
    description: `${SHOP} is a small example shop whose pages are rendered in the browser.`,
    content: [
      element("div", { class: "prose" },
        element("h1", {}, "About us"),
        element("p", { class: "lead" },
          "We sell twelve things, and we would sell eleven if one of them were not good."),
        element("p", {},
          "This shop is an example of a site whose pages are rendered in the browser. Its server sends "
          + "JSON; JavaScript creates everything that you read here, from the part of the URL after "
          + "the #!."),
        element("p", {},
          "A crawler that does not run JavaScript would see an empty page. With a prerender proxy in "
          + "front, it gets this text, without a change to the shop."),
        element("p", {}, element("a", { class: "button", href: "/#!/items" }, "See all items"))),
    ],
  };
}

function notFound(explanation) {
  return {
    title: `Not found · ${SHOP}`,
    description: explanation,
    status: 404,
    content: [
      element("h1", {}, "Not found"),
      element("p", { class: "lead" }, explanation),
      element("p", {}, element("a", { class: "button", href: "/#!/items" }, "See all items")),
    ],
  };
}

/** Not a 404: the page exists, and crawlers should try again later. */
function unavailable() {
  const again = element("button", { type: "button", class: "button" }, "Try again");
  again.addEventListener("click", navigate);
  return {
    title: `Not available · ${SHOP}`,
    description: "The shop cannot be reached at the moment.",
    status: 503,
    content: [
      element("h1", {}, "The shop cannot be reached"),
      element("p", { class: "lead", role: "alert" },
        "Please check your connection, or try again in a moment."),
      element("p", {}, again),
    ],
  };
}

// ---- Parts of views -------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function cards(items, heading) {
  return element("ul", { class: "cards" }, ...items.map((shown) =>
    element("li", {},
      picture(shown),
      element(heading, {}, element("a", { href: `/#!${itemState(shown)}` }, shown.name)),
      element("p", { class: "summary" }, shown.summary),
      element("p", { class: "facts" },
        element("strong", {}, inEuro(shown.price_cents)),
        element("span", { role: "img", "aria-label": `Rated ${shown.rating} out of 5` },
          `★ ${shown.rating}`)))));
}

/** All drawings are views of one file, so a list of items needs one request. */
function picture({ id, category }) {
  return element("div", { class: "picture", "data-category": category },
    element("img", { src: `/art.svg#item-${id}`, alt: "", width: 200, height: 200 }));
}

function rating({ rating: stars, ratings }) {
  return element("p", { class: "rating" },
    element("span", { class: "stars", "aria-hidden": "true", style: `--rating: ${stars}` }, "★★★★★"),
    ` ${stars} out of 5 (${ratings} ratings)`);
}

function breadcrumb({ name }) {
  return element("nav", { class: "breadcrumb", "aria-label": "Breadcrumb" },
    element("ol", {},
      element("li", {}, element("a", { href: "/" }, "Shop")),
      element("li", {}, element("a", { href: "/#!/items" }, "Items")),
      element("li", { "aria-current": "page" }, name)));
}

function searchForm(q, sort) {
  const orders = [["", "Best match"], ["price", "Lowest price"], ["rating", "Highest rating"]];
  const form = element("form", { role: "search" },
    element("label", {}, "Search for",
      element("input", { type: "search", name: "q", value: q, placeholder: "lamp" })),
    element("label", {}, "Sort by",
      element("select", { name: "sort" }, ...orders.map(([value, label]) =>
        element("option", value === sort ? { value, selected: "" } : { value }, label)))),
    element("button", { class: "button" }, "Search"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = `#!${searchState(form.elements.q.value.trim(), form.elements.sort.value)}`;
  });
  return form;
}

/** Structured data for search engines: schema.org's Product and BreadcrumbList. */
function productData(shown) {
  const trail = [["Shop", absolute("")], ["Items", absolute("/items")]];
  trail.push([shown.name, absolute(itemState(shown))]);
  return {
    "@context": "https://schema.org",
    "@graph": [{
      "@type": "Product",
      name: shown.name,
      sku: String(shown.id),
      category: shown.category,
      description: shown.description,
      image: `${location.origin}/art.svg#item-${shown.id}`,
      aggregateRating: {
        "@type": "AggregateRating",
        ratingValue: shown.rating,
        ratingCount: shown.ratings,
      },
      offers: {
        "@type": "Offer",
        url: absolute(itemState(shown)),
        price: (shown.price_cents / 100).toFixed(2),
        priceCurrency: "EUR",
        availability: `https://schema.org/${shown.in_stock ? "InStock" : "SoldOut"}`,
      },
    }, {
      "@type": "BreadcrumbList",
      itemListElement: trail.map(([name, url], index) =>
        ({ "@type": "ListItem", position: index + 1, name, item: url })),
    }],
  };
}

// ---- Showing a view -------------------------------------------------------------------------

function headOf({ title, description, status, jsonLd }, url) {
  const meta = (name, content) => element("meta", { name, content });
  const openGraph = (property, content) => element("meta", { property, content });
  const head = [
    meta("description", description),
    element("link", { rel: "canonical", href: url }),
    openGraph("og:title", title),
    openGraph("og:description", description),
    openGraph("og:url", url),
  ];
  // A page cannot set its own HTTP status, so it declares one for the prerender proxy.
  if (status) head.push(meta("prerender-status-code", status));
  if (status === 404) head.push(meta("robots", "noindex"));
  // The only text that becomes source: "</script>" in the data must not end the element.
  const json = jsonLd && JSON.stringify(jsonLd).replaceAll("<", "\\u003c");
  if (json) head.push(element("script", { type: "application/ld+json" }, json));
  return head;
}

function show(view, currentState) {
  const state = view.state ?? currentState;
  document.title = view.title;
  for (const old of document.head.querySelectorAll("[data-state]")) old.remove();
  for (const made of headOf(view, absolute(state))) {
    made.dataset.state = "";
    document.head.append(made);
  }
  for (const link of document.querySelectorAll("header nav a")) {
    const current = link.hash !== "" && state.startsWith(link.hash.slice(2));
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(...view.content);
}

let leaving = new AbortController();

async function navigate(event) {
  const hash = location.hash;
  if (hash && !hash.startsWith("#!")) return; // an anchor within the page, not a state
  const state = hash.slice(2);
  leaving.abort(); // a late response for the last state must not replace the new one
  leaving = new AbortController();
  const { signal } = leaving;
  main.setAttribute("aria-busy", "true");
  let view;
  try {
    view = await viewOf(state, signal);
  } catch (failure) {
    if (!signal.aborted) console.error(failure);
    view = unavailable();
  }
  if (signal.aborted) return;
  show(view, state);
  main.removeAttribute("aria-busy");
  if (!event) return; // the first view: the browser handles scrolling and focus
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // navigating to "#main" would replace the state in the URL
  main.focus();
});
addEventListener("hashchange", navigate);
navigate();
