// ---- What settle.py asks for.
const summed = ["intervals", "frames", "working", "layout", "talking", "activity", "mutations",
  "unseen", "foreign"];
const state = () => {
  const within = [];
  forEachFrame((probe) => { within[within.length] = probe(); });
  finishAnimations();
  const time = now();
  const due = [];
  let pending = 0;
  timers.forEach((at) => { due[pending++] = at - time; });
  const ready = globalThis.prerenderReady;
  const own = {
    complete: document.readyState === "complete",
    parsed,
    ready: typeof ready === "boolean" ? ready : null,
    timers: due,
    intervals: intervals.size,
    frames: frames.size,
    working: open.working + idle.size,
    layout: open.layout,
    talking: open.talking,
    foreign,
    activity,
    unseen: waitingToBeSeen().size + (scrollY === 0 && listensToScrolling() ? 1 : 0),
    mutations: (mutations += count.takeRecords().length),
    errors: errors.length,
    sheets: touchedSheets.size,
  };
  for (const frame of within) {
    for (const at of frame.timers) due[pending++] = at;
    for (const key of summed) own[key] += frame[key];
  }
  return own;
};
state.lead = lead;
state.sheets = restyled;
state.sight = { height, shown, tour, nextToVisit, hasNextToVisit: () => nextToVisit() !== null };

// ---- What the page's scripts complain of, for the owner of the site.
const errors = state.errors = [];
const complain = (...parts) => {
  if (errors.length < 20) errors.push(parts.map(String).join(" ").slice(0, 500));
};
listen.call(globalThis, "error", ({ message }) => { if (message) complain(message); });
listen.call(globalThis, "unhandledrejection", ({ reason }) => complain("Unhandled:", reason));
patch(globalThis.console, "error", (original) => function (...given) {
  try { complain(...given); } catch { /* an object that cannot be text */ }
  return original.apply(this, given);
});

Object.defineProperty(globalThis, name, { value: state });
