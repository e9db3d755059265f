// ---- What is logged keeps the browser's own process busy, and nobody reads it: a flood of it is dropped.
const MOST_LOGGED = 1000;
let logged = 0;
for (const method of Object.keys(globalThis.console)) {
  patch(globalThis.console, method, (original) => function (...given) {
    return logged++ < MOST_LOGGED ? original.apply(this, given) : undefined;
  });
}
