// ---- The state for settling/.
const summed = ["intervals", "frames", "working", "layout", "drawn", "watched", "talking", "fetching", "activity",
  "mutations", "unseen", "foreign"];
let focused = false;
const state = () => {
  const within = [];
  forEachFrame((probe) => { within[within.length] = probe(); });
  const ends = animationEnds();
  const unseenParts = waitingToBeSeen().size;
  if (!focused && call(querySelector, document, ["[autofocus]"])) { focused = true; wantFrame(); }
  const time = now();
  const due = [];
  let pending = 0;
  timers.forEach((at) => { due[pending++] = at - time; });
  for (let i = 0; i < ends.length; i++) {
    if (ends[i] === 0) wantFrame();
    if (ends[i] < Infinity) due[pending++] = ends[i];
  }
  const refresh = refreshDue();
  // A frame that does not arrive is not waited for.
  if (refresh !== null && time - refresh < 500) due[pending++] = refresh - time;
  const ready = globalThis.prerenderReady;
  const own = {
    complete: document.readyState === "complete",
    parsed,
    elapsed: pageTime(),
    ready: typeof ready === "boolean" ? ready : null,
    timers: due,
    intervals: intervals.size,
    frames: frames.size,
    working: open.working + idle.size,
    layout: open.layout + open.drawn + frameWanted,
    drawn: open.drawn,
    // Observers that a frame may notify after any change.
    watched: observers + ends.length + unseenParts + foreign,
    talking: open.talking,
    fetching,
    foreign,
    activity,
    // Asking for scrollY computes the layout.
    unseen: unseenParts + (listensToScrolling() && scrollY === 0 ? 1 : 0),
    mutations: (mutations += count.takeRecords().length),
    errors: errors.length,
    sheets: touchedSheets.size,
  };
  frameWanted = false; // settling/ draws one now
  for (const frame of within) {
    for (const at of frame.timers) due[pending++] = at;
    for (const key of summed) own[key] += frame[key];
  }
  return own;
};
state.lead = lead;
state.sheets = restyled;
state.sight = { height, shown, tour, nextToVisit, hasNextToVisit: () => nextToVisit() !== null };

// ---- Errors of the page's scripts, for the site's owner.
const errors = state.errors = [];
const complain = (...parts) => {
  if (errors.length < 20) errors.push(parts.map(String).join(" ").slice(0, 500));
};
listen.call(globalThis, "error", ({ message }) => { if (message) complain(message); });
listen.call(globalThis, "unhandledrejection", ({ reason }) => complain("Unhandled:", reason));
patch(globalThis.console, "error", (original) => function (...given) {
  try { complain(...given); } catch { /* an object that cannot be converted to text */ }
  return original.apply(this, given);
});

// Data that arrived but cannot be parsed: applications catch the exception and show an error.
const malformed = (url) => complain(`Malformed JSON: ${url}`);
const texts = newMap(); // the last responses with their URLs
const remember = (text, url) => {
  if (texts.size >= 64) texts.clear();
  texts.set(text, url);
};
patch(globalThis.Response?.prototype, "json", (original) => function (...given) {
  const promise = original.apply(this, given);
  then.call(promise, () => {}, (error) => { if (error instanceof SyntaxError) malformed(this.url); });
  return promise;
});
patch(globalThis.Response?.prototype, "text", (original) => function (...given) {
  const promise = original.apply(this, given);
  then.call(promise, (text) => remember(text, this.url), () => {});
  return promise;
});
for (const property of ["response", "responseText"]) {
  const descriptor = Object.getOwnPropertyDescriptor(XMLHttpRequest.prototype, property);
  Object.defineProperty(XMLHttpRequest.prototype, property, {
    ...descriptor,
    get() {
      const given = call(descriptor.get, this, []);
      if (this.readyState !== 4) return given;
      if (typeof given === "string") remember(given, this.responseURL);
      else if (given === null && this.responseType === "json" && this.status === 200) malformed(this.responseURL);
      return given;
    },
  });
}
patch(globalThis.JSON, "parse", (original) => function (text, ...rest) {
  try { return original(text, ...rest); } catch (error) {
    if (texts.has(text)) malformed(texts.get(text));
    throw error;
  }
});

Object.defineProperty(globalThis, name, { value: state });
