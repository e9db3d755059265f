// Clients that look automated and are not in the list of crawlers, each with the setting that classes it.

import { card, count, counted, h, moment, pill, toast } from "./dom.js";
import { CLASSES } from "./words.js";

const WHY = {
  name: ["program", "Its User-Agent is that of a program"],
  behavior: ["no files, no language", "All who send this User-Agent read pages without Accept-Language and without their files"],
};
const SHOWN = 20;

// The chosen class of each bot: the overview is drawn again every few seconds.
const chosen = new Map();

/** found: the response of /bots. Null if there are none. */
export function bots(found) {
  if (!found.items.length) return null;
  return card("Unknown bots", { id: "bots", class: "listing" },
    h("div", { class: "bar" }, h("p", { class: "count" },
      `${counted(found.count, "client")} that look automated and are not in the list of crawlers, since `, moment(found.since))),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Unknown bots" },
      h("table", { class: "list crawlers bots" },
        h("thead", {}, h("tr", {}, head("Name"), head("Responses"), ["Pages", "Files", "Last"].map(number), head("Class it"))),
        h("tbody", {}, found.items.slice(0, SHOWN).map((bot) => row(bot, found.more))))));
}

const head = (text) => h("th", { scope: "col" }, text);
const number = (text) => h("th", { scope: "col", class: "number" }, text);

function row(bot, more) {
  const [why, title] = WHY[bot.why];
  return h("tr", {},
    h("th", { scope: "row", class: "name" },
      h("span", { class: bot.name ? "cut" : "whole", title: bot.user_agent }, bot.name || bot.user_agent || "without User-Agent"), " ", pill(why, "plain", title), " ",
      bot.robots ? pill("reads robots.txt", "plain") : null),
    h("td", { class: "got", "data-label": "Responses" }, got(bot)),
    h("td", { class: "number", "data-label": "Pages" }, count(bot.pages)),
    h("td", { class: "number", "data-label": "Files" }, count(bot.files)),
    h("td", { class: "number", "data-label": "Last" }, moment(bot.last)),
    h("td", { class: "tops", "data-label": "Class it" }, bot.name ? setting(bot, more)
      : h("span", {}, bot.user_agent ? "not by name: browsers have this User-Agent, too" : "not possible by name")));
}

function got(bot) {
  const parts = [[bot.snapshots, "snapshot"], [bot.forwarded, "forwarded", ""], [bot.refused, "refused", ""], [bot.errors, "error"]];
  const texts = parts.filter(([some]) => some).map(([some, noun, plural]) => counted(some, noun, `${noun}${plural ?? "s"}`));
  return bot.missing ? `${texts.join(", ")}; ${count(bot.missing)} with 4xx` : texts.join(", ");
}

/** A line for [triggers] to copy, with the names that are there already. */
function setting(bot, more) {
  const line = (value) => `more = [${[...more, { class: value, name: bot.name }]
    .map((one) => `{ class = "${one.class}", name = ${JSON.stringify(one.name)} }`).join(", ")}]`;
  const value = chosen.get(bot.name) || "seo_tool";
  const code = h("code", {}, line(value));
  const choice = h("select", {
    "aria-label": `Class of ${bot.name}`,
    onchange: () => { chosen.set(bot.name, choice.value); code.textContent = line(choice.value); },
  }, Object.entries(CLASSES).filter(([name]) => name !== "signed").map(([name, label]) => h("option", { value: name, selected: name === value }, label)));
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      toast("Copied. Put the line into [triggers].");
    } catch {
      getSelection().selectAllChildren(code);
    }
  };
  return h("details", {}, h("summary", {}, "Setting"), choice, " ", h("button", { type: "button", class: "quiet", onclick: copy }, "Copy"),
    h("br"), code);
}
