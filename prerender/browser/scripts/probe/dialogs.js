import { patch } from "./core.js";

// ---- Dialogs are dismissed here: each would block the page until a response from outside the browser.
const textOf = (given) => { for (const part of given) `${part}`; }; // the conversion that a page can observe
for (const [method, answer] of [["alert", undefined], ["confirm", false], ["prompt", null]]) {
  patch(globalThis, method, () => function (...given) {
    textOf(given.slice(0, method === "prompt" ? 2 : 1));
    return answer;
  });
}
