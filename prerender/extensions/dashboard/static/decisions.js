// How the proxy would respond to typical clients, by /explain.

import * as api from "./api.js";
import { card, h, nothing, pill, replace } from "./dom.js";

const PERSON = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36";
const ASKING = [
  ["A visitor", PERSON],
  ["Google Search", "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"],
  ["OpenAI training crawler", "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)"],
  ["A link preview", "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)"],
];
const DECISIONS = { render: ["Snapshot", "good"], forward: ["Page of the origin", "plain"], refuse: ["Refused", "warn"] };

/** For one page: at its ugly URL and, unless it has a #! state, at its own. */
export function decisions(url, signal) {
  const place = h("div", { "aria-live": "polite" }, h("p", { class: "dim" }, "…"));
  const asked = [["Any client, ugly URL", { url: ugly(url) }]];
  // Fragments are never sent: such a page cannot be requested at its own URL.
  if (!url.includes("#!")) asked.push(...ASKING.map(([who, user_agent]) => [who, { url, user_agent }]));
  Promise.all(asked.map(async ([who, values]) => [who, await api.get("explain", values, signal)])).then(
    (told) => replace(place, table(told)),
    (error) => { if (!signal.aborted) replace(place, nothing(error.message)); },
  );
  return card("Decisions", { id: "decisions", class: "listing", note: "How the proxy would respond now, according to [triggers]." }, place);
}

/** The ugly URL of a page: /explain converts #! itself. */
const ugly = (url) => (url.includes("#!") ? url : `${url}${url.includes("?") ? "&" : "?"}_escaped_fragment_=`);

function table(told) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Decisions" },
    h("table", { class: "list" },
      h("thead", {}, h("tr", {}, ["Client", "Response", "Reason", "Source"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, told.map(([who, { decision, reason_text, answered_by }]) => h("tr", {},
        h("th", { scope: "row" }, who), h("td", {}, pill(...(DECISIONS[decision] || [decision]))),
        h("td", { class: "reason", "data-label": "Reason" }, reason_text), h("td", { "data-label": "Source" }, answered_by))))));
}
