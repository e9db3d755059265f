// ---- Traversals of the session history: a page that comes directly has nowhere to go. Chromium counts those that
// lead nowhere too, and would ignore the page's navigations after 200.
const MOST_TRAVERSALS = 2;
let traversals = 0;
for (const method of ["back", "forward", "go"]) {
  patch(prototypeOf("History"), method, (original) => function (...given) {
    return traversals++ < MOST_TRAVERSALS ? original.apply(this, given) : undefined;
  });
}
