// Metadata of a page: title, description, canonical, robots, Open Graph, JSON-LD, link preview.

import * as api from "./api.js";
import { card, counted, facts, h, pill, replace } from "./dom.js";

export function searchResult({ reading, snapshot, url }) {
  const { title, description, canonical, robots, noindex } = reading;
  const own = !canonical || (URL.canParse(canonical, url) && new URL(canonical, url).href === new URL(url).href);
  return card("Search result", { id: "search" },
    h("div", { class: "result", "aria-label": "Preview of the search result", role: "img" },
      h("span", { class: "result-url" }, url), h("span", { class: "result-title" }, clip(title, 60) || "No title"),
      h("span", { class: "result-text" }, clip(description, 160) || "No description: search engines show part of the text.")),
    facts([
      ["Title", title || none("missing"), " ", length(title, 15, 65)],
      ["Description", description || none("missing"), " ", length(description, 50, 170)],
      ["Canonical", canonical ? h("code", {}, canonical) : none("none"), " ", own ? null : pill("another page", "warn"),
        canonical.includes("_escaped_fragment_") ? pill("ugly form", "bad") : null],
      ["Robots", robots ? h("code", {}, robots) : "no restriction", " ", noindex ? pill("excluded from the index", "bad") : null],
      ["Status", String(snapshot.status), " ", snapshot.status === 200 ? null : pill("not indexed", "warn")],
      ["Language", reading.language || none("missing")],
      ["Links, images", `${counted(reading.links, "link")}, ${counted(reading.images, "image")}`, " ",
        reading.images_without_text ? pill(`${reading.images_without_text} without alt`, "warn") : null],
      reading.alternates.length ? ["Languages", reading.alternates.map(([language]) => language).join(", ")] : null,
    ]),
    h("details", { class: "figures" }, h("summary", {}, `Headings (${reading.headings.length})`),
      h("ul", { class: "outline" }, reading.headings.map(([level, text]) => h("li", { class: `level-${level}` },
        h("span", { class: "dim" }, `h${level} `), text)))));
}

export function linkPreview({ id, reading, url }, signal) {
  const { title, description, image, site } = reading.preview;
  const picture = h("div", { class: "preview-image" }, h("span", {}, image ? "Loading the image …" : "No image (og:image)"));
  if (image) {
    api.picture(`snapshots/${id}/preview.png`, signal).then((blob) => {
      const address = URL.createObjectURL(blob);
      signal.addEventListener("abort", () => URL.revokeObjectURL(address));
      replace(picture, h("img", { src: address, alt: "The image of the link preview" }));
    }, (error) => signal.aborted || replace(picture, h("span", {}, error.message)));
  }
  return card("Link preview", { id: "preview", note: "How social networks and messengers show a link to this page." },
    h("div", { class: "preview" }, picture, h("div", { class: "preview-text" },
      h("span", { class: "preview-site" }, site || host(url)), h("strong", {}, clip(title, 70) || "No title"),
      h("span", {}, clip(description, 120)))),
    reading.open_graph.length
      ? h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Open Graph" }, h("table", { class: "fields" }, h("tbody", {},
        reading.open_graph.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value))))))
      : h("p", { class: "dim" }, "No Open Graph tags: networks use the title and description."));
}

export function structuredData({ reading }) {
  const blocks = reading.structured_data;
  return card("Structured data", { id: "data", note: "JSON-LD, as search engines read it for rich results." },
    blocks.length ? blocks.map((block) => h("div", { class: "block" },
      h("p", { class: "marks" }, block.valid ? pill("valid JSON", "good") : pill("not JSON", "bad"),
        block.types.map((type) => pill(type, "accent"))),
      h("details", { class: "figures" }, h("summary", {}, "Show"),
        h("pre", { tabindex: 0, class: "scroll" }, block.text)))) : h("p", { class: "dim" }, "None."));
}

function length(text, least, most) {
  if (!text) return null;
  const characters = [...text].length;
  if (characters < least) return pill(`${counted(characters, "character")}: too short`, "warn");
  return characters > most ? pill(`${counted(characters, "character")}: too long`, "warn") : null;
}

const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1).trimEnd()}…` : text);
const none = (text) => pill(text, "warn");

function host(url) {
  try { return new URL(url).host; } catch { return ""; }
}
