// Screenshots of the page and of the snapshot side by side, and the differences between their texts.

import * as api from "./api.js";
import { card, counted, h, nothing, percent, pill, replace } from "./dom.js";

const LONG = 6; // longer runs of equal lines are folded

const MOST_REFUSED = 5;
const WITHOUT_TEXT = new Set(["image", "font", "video", "audio", "track"]);

export function comparison({ id, render }, signal) {
  const user = frame("Visitor", "the page now, with scripts", "Screenshot of the page");
  const crawler = frame("Crawler", "the snapshot, without scripts", "Screenshot of the snapshot");
  const pair = h("div", { class: "pair" }, user.element, crawler.element);
  const overlay = h("div", { class: "overlay scroll", tabindex: 0, role: "region", "aria-label": "Difference of the screenshots" });
  overlay.hidden = true;
  const verdict = h("span", { class: "marks", "aria-live": "polite" }, h("span", { class: "dim" }, "comparing …"));
  const text = h("div", { class: "difference" });
  const spoken = h("div", { class: "difference" });
  const changes = h("div", { class: "changes" });
  const load = async (name, place) => {
    try {
      const address = URL.createObjectURL(await api.picture(`snapshots/${id}/${name}.png`, signal));
      signal.addEventListener("abort", () => URL.revokeObjectURL(address));
      place.show(address);
      return address;
    } catch (error) {
      if (!signal.aborted) place.fail(error.message);
      return null;
    }
  };
  const choose = (mode) => {
    pair.hidden = mode !== "side";
    overlay.hidden = mode === "side";
    for (const button of modes) button.setAttribute("aria-pressed", String(button.value === mode));
  };
  const modes = [["side", "Side by side"], ["difference", "Difference"]].map(([value, label]) =>
    h("button", { type: "button", value, "aria-pressed": String(value === "side"), onclick: () => choose(value) }, label));
  (async () => {
    const first = await load("user", user);
    const second = await load("crawler", crawler);
    if (first && second) {
      const differing = await difference(first, second);
      overlay.append(h("p", { class: "note" }, differing
        ? `${percent(differing, 1)} of the pixels differ. They are shown in light colours.` : "The screenshots are identical."));
      overlay.classList.toggle("equal", !differing);
      if (differing) {
        overlay.append(h("div", { class: "stack" }, h("img", { src: first, alt: "Screenshot of the page" }),
          h("img", { src: second, alt: "Differing pixels of the snapshot in light colours" })));
      }
    } else overlay.append(nothing("A screenshot is missing."));
    try {
      const found = await api.get(`snapshots/${id}/comparison`, {}, signal);
      const tone = found.similarity > 0.98 ? "good" : found.similarity > 0.8 ? "warn" : "bad";
      replace(verdict, pill(`${percent(found.similarity, 1)} of the text is the same`, tone));
      replace(text, passages(found, "only visitors see", "only crawlers see"));
      replace(spoken, announcements(found.unannounced));
      replace(changes, ...changed(found));
    } catch (error) {
      if (signal.aborted) return;
      replace(verdict, pill("not compared", "warn"));
      replace(text, nothing(error.message));
      replace(spoken, nothing(error.message));
    }
  })();
  return card("Comparison", { id: "looks", class: "looks" },
    h("div", { class: "bar" }, verdict, h("div", { class: "actions switch", role: "group", "aria-label": "View" }, modes)),
    pair, overlay, changes, refused(render?.fetches ?? []),
    h("h3", {}, "Text"), h("p", { class: "note" },
      "The text that a visitor sees now, compared with the text of the snapshot. Times and prices may have changed since the render."),
    text,
    h("h3", {}, "Screen readers"), spoken);
}

/** The requests that the proxy refuses: the visitor's picture is taken through it, too. */
function refused(fetches) {
  const found = fetches.filter((fetch) => fetch.verdict === "blocked" && !WITHOUT_TEXT.has(fetch.kind));
  if (!found.length) return null;
  const shown = found.slice(0, MOST_REFUSED).map(({ url, reason }) => h("li", {}, reason ? `${url}: ${reason}` : url));
  if (found.length > MOST_REFUSED) shown.push(h("li", {}, `and ${found.length - MOST_REFUSED} more`));
  return h("div", { class: "difference refused" },
    h("p", { class: "note" }, "The proxy refuses these requests, in both pictures. The browser of a visitor makes them. "
      + "If the page needs one for its content, add its host to [network] allow."),
    h("ul", {}, shown));
}

/** What the settings change of the page, so that the difference is no surprise. */
function changed({ removed, not_found: unmatched, added }) {
  if (!removed.length && !unmatched.length && !added.length) return [];
  const bySelector = Map.groupBy(removed, ({ selector }) => selector);
  const lines = [...bySelector].map(([selector, elements]) => h("li", {}, h("del", {}, selector),
    ` ${counted(elements.length, "element")}: `, elements.map(({ text }) => text).filter(Boolean).join(" · ").slice(0, 300) || "without text"));
  lines.push(...unmatched.map((selector) => h("li", {}, h("del", {}, selector), " matches nothing now")));
  lines.push(...added.map((html) => h("li", {}, h("ins", {}, html))));
  return [h("div", { class: "difference refused" },
    h("p", { class: "note" }, "Changed by [snapshot] remove and add: crawlers do not get what is struck out, and only crawlers get what is added."),
    h("ul", {}, lines))];
}

/** What a screen reader announces on the page but not in the snapshot. */
function announcements(missing) {
  if (!missing.length) return h("p", { class: "note" }, "A screen reader announces the same in the snapshot.");
  return h("div", {},
    h("p", { class: "note" }, "Announced on the page but not in the snapshot:"),
    h("ul", {}, missing.map((text) => h("li", {}, text))));
}

/** The share of pixels that differ. Rows that only one of the screenshots has count as different. */
async function difference(...sources) {
  const [left, right] = await Promise.all(sources.map(async (source) => {
    const picture = new Image();
    picture.src = source;
    await picture.decode();
    const canvas = new OffscreenCanvas(picture.naturalWidth, picture.naturalHeight);
    const context = canvas.getContext("2d");
    context.drawImage(picture, 0, 0);
    return new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  }));
  const shared = Math.min(left.length, right.length);
  const most = Math.max(left.length, right.length);
  let differing = most - shared;
  for (let index = 0; index < shared; index++) if (left[index] !== right[index]) differing++;
  return differing / most;
}

function frame(title, note, alt) {
  const inside = h("div", { class: "shot scroll", tabindex: 0, role: "region", "aria-label": alt },
    h("div", { class: "wait", role: "status" }, "Taking the screenshot …"));
  return {
    element: h("figure", { class: "frame" }, h("figcaption", {}, h("strong", {}, title), " ", h("span", { class: "dim" }, note)), inside),
    show: (source) => replace(inside, h("img", { src: source, alt, width: 1280 })),
    fail: (message) => replace(inside, nothing(message)),
  };
}

/** The differences of two texts. Equal passages are folded. */
export function passages(found, left, right) {
  const changes = found.passages.filter((passage) => passage.kind === "changed").length;
  if (!found.passages.length) return nothing("Both are empty.");
  return h("div", {},
    h("p", { class: "key" },
      changes ? `${counted(changes, "passage differs", "passages differ")}: ` : "The texts are identical.",
      changes ? [h("del", {}, left), " ", h("ins", {}, right)] : null,
      found.cut ? " Only the beginnings were compared." : ""),
    h("div", { class: "text scroll", tabindex: 0, role: "region", "aria-label": "Text comparison" },
      found.passages.map((passage) => (passage.kind === "same" ? same(passage.right) : [
        passage.left ? h("del", {}, h("span", { class: "unseen" }, `${left}: `), passage.left) : null,
        passage.right ? h("ins", {}, h("span", { class: "unseen" }, `${right}: `), passage.right) : null,
      ]))));
}

function same(text) {
  const lines = text.split("\n");
  if (lines.length <= LONG) return h("span", {}, `${text}\n`);
  const hidden = lines.slice(2, -2).join("\n");
  const button = h("button", {
    type: "button", class: "fold",
    onclick: () => button.replaceWith(h("span", {}, `${hidden}\n`)),
  }, `${counted(lines.length - 4, "line")} unchanged`);
  return [h("span", {}, `${lines.slice(0, 2).join("\n")}\n`), button, h("span", {}, `${lines.slice(-2).join("\n")}\n`)];
}
