// Mithril: its own router with its default prefix, #!, and its own requests.
import m from "mithril";

let birds = null;
const Birds = {
  oninit: () => m.request("/api/birds").then((found) => { birds = found; }),
  oncreate: () => { document.title = "All birds"; },
  view: () => birds
    ? m("ul", birds.map(({ id, name }) => m("li", { key: id }, m(m.route.Link, { href: `/birds/${id}` }, name))))
    : m("p", "Loading"),
};
const Bird = {
  oninit: async ({ attrs: { id }, state }) => {
    try {
      state.bird = await m.request("/api/birds/:id", { params: { id } });
      document.title = state.bird.name;
      state.places = await m.request("/api/birds/:id/places", { params: { id } });
    } catch (error) {
      state.error = error.response.error;
      document.head.append(Object.assign(document.createElement("meta"), { name: "prerender-status-code", content: "404" }));
    }
  },
  view: ({ state: { bird, places, error } }) => error
    ? m("p", `Unknown: ${error}`)
    : [m("h1", bird?.name ?? "Loading"), m("p", places?.join(", ") ?? "Loading places")],
};

m.route(document.getElementById("app"), "/birds", {
  "/birds": Birds,
  "/birds/:id": Bird,
  "/late": { onmatch: () => import("./Late.js").then((module) => module.default) },
});
