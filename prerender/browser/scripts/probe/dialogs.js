// ---- Dialogs are dismissed here: each would stop the page until an answer came from outside the browser.
const textOf = (given) => { for (const part of given) `${part}`; }; // what a page sees of it
for (const [method, answer] of [["alert", undefined], ["confirm", false], ["prompt", null]]) {
  patch(globalThis, method, () => function (...given) {
    textOf(given.slice(0, method === "prompt" ? 2 : 1));
    return answer;
  });
}
