// Who gets the snapshot, who the page as it is, and why: what /explain says of some that may ask.

import * as api from "./api.js";
import { card, h, nothing, pill, replace } from "./dom.js";

const PERSON = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36";
const ASKING = [
  ["A person with a browser", PERSON],
  ["Google search", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"],
  ["OpenAI training", "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)"],
  ["A link preview", "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)"],
];
const DECISIONS = { render: ["Snapshot", "good"], forward: ["The page itself", "plain"], refuse: ["Refused", "warn"] };

/** For one page: by its ugly URL, and by its own where a crawler is known by its name. */
export function decisions(url, uglyUrl, signal) {
  const place = h("div", { "aria-live": "polite" }, h("p", { class: "dim" }, "…"));
  const asked = [["Anybody, by the ugly URL", { url: uglyUrl }]];
  // What follows a # is never sent: nobody can ask for such a page by its own URL.
  if (!url.includes("#!")) asked.push(...ASKING.map(([who, user_agent]) => [who, { url, user_agent }]));
  Promise.all(asked.map(async ([who, values]) => [who, await api.get("explain", values, signal)])).then(
    (told) => replace(place, table(told)),
    (error) => { if (!signal.aborted) replace(place, nothing(error.message)); },
  );
  return card("Who gets it", { id: "decisions", class: "listing", note: "What would be answered now, by the settings in [triggers]." }, place);
}

function table(told) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Who gets it" },
    h("table", { class: "list" },
      h("thead", {}, h("tr", {}, ["Who asks", "Gets", "Why", "Answered by"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, told.map(([who, { decision, reason, answered_by }]) => h("tr", {},
        h("th", { scope: "row" }, who), h("td", {}, pill(...(DECISIONS[decision] || [decision]))),
        h("td", { "data-label": "Why" }, reason), h("td", { "data-label": "Answered by" }, answered_by))))));
}
