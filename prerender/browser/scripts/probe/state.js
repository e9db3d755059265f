import { animationEnds } from "./animations.js";
import { getResponseHeader, unused, usage } from "./async_work.js";
import { acknowledged, pushed } from "./channels.js";
import { lead, pageTime } from "./clocks.js";
import {
  activity, call, fetching, getEntriesByType, intervals, listen, matched, mutations, name, newMap, now, open, page, patch,
  performance, querySelector, then, timers,
} from "./core.js";
import { countPendingMutations, forEachFrame, foreign, mutationsAtMessage, parsed, refreshDue } from "./document.js";
import { attached, attachments } from "./internals.js";
import { forgetFrame, frameWanted, observers, wantFrame } from "./layout.js";
import { height, listensToScrolling, nextToVisit, restore, shown, tour, waitingToBeSeen } from "./lazy_content.js";
import { refusedStyles, restyled, touchedSheets } from "./sheets.js";
import { frames, idle } from "./timers.js";
import "./dialogs.js";
import "./quotas.js";
import "./user_agent.js";
import "./window.js";

// ---- The state for settling/.
const summed = ["intervals", "frames", "working", "layout", "drawn", "watched", "talking", "fetching", "activity",
  "mutations", "unseen", "foreign", "acknowledged", "pushed", "delivering"];
// Timers that no budget reaches are not told, and of very many only the first and the next one.
const MOST_TIMERS = 1000;
const LATEST_MS = 3_600_000;
let focused = false;
const state = () => {
  countPendingMutations();
  const within = [];
  forEachFrame((probe) => { within[within.length] = probe(); });
  const ends = animationEnds();
  const unseenParts = waitingToBeSeen().size;
  if (!focused && call(querySelector, document, ["[autofocus]"])) { focused = true; wantFrame(); }
  const time = now();
  const due = [];
  let pending = 0;
  const falls = (left) => {
    if (!(left <= LATEST_MS)) return;
    if (pending < MOST_TIMERS) due[pending++] = left;
    else if (left < due[0]) due[0] = left;
  };
  timers.forEach((at) => falls(at - time));
  for (let i = 0; i < ends.length; i++) {
    if (ends[i] === 0) wantFrame();
    falls(ends[i]);
  }
  const refresh = refreshDue();
  // A frame that does not arrive is not waited for.
  if (refresh !== null && time - refresh < 500) falls(refresh - time);
  const ready = globalThis.prerenderReady;
  const total = {
    complete: page.readyState === "complete",
    parsed,
    elapsed: pageTime(),
    ready: typeof ready === "boolean" ? ready : null,
    timers: due,
    intervals: intervals.size,
    frames: frames.size,
    working: open.working + idle.size,
    layout: open.layout + open.drawn + (frameWanted ? 1 : 0),
    drawn: open.drawn,
    // Observers that a frame may notify after any change.
    watched: observers + ends.length + unseenParts + foreign,
    // Channels that have sent something, and those of them whose last message has changed the page.
    talking: open.talking,
    acknowledged,
    pushed,
    delivering: mutations > mutationsAtMessage ? open.talking : 0,
    fetching,
    foreign,
    activity,
    // Asking for scrollY computes the layout.
    unseen: unseenParts + (listensToScrolling() && page.scrollY === 0 ? 1 : 0),
    mutations,
    errors: complaints.size() + malformed.size(),
    sheets: touchedSheets.size,
    attachments,
  };
  forgetFrame();
  for (const frame of within) {
    for (const left of frame.timers) falls(left);
    for (const key of summed) total[key] += frame[key];
  }
  return total;
};
state.lead = lead;
state.sheets = restyled;
state.unused = unused;
state.usage = usage;
state.refusedStyles = refusedStyles;
state.attached = attached;

// Whether the page has got the responses to all these requests, some of which may have the same URL.
// Those of frames and workers are not listed.
const nameOf = Object.getOwnPropertyDescriptor(PerformanceEntry.prototype, "name").get;
state.has = (urls) => {
  const entries = call(getEntriesByType, performance, ["resource"]);
  const names = [];
  for (let i = 0; i < entries.length; i++) names[i] = call(nameOf, entries[i], []);
  for (let i = 0; i < urls.length; i++) {
    let at = 0;
    while (at < names.length && names[at] !== urls[i]) at++;
    if (at === names.length) return false;
    names[at] = "";
  }
  return true;
};
state.sight = { height, shown, tour, restore, nextToVisit, hasNextToVisit: () => nextToVisit() !== null };

// ---- Two lists for the site's owner: errors of the page's scripts, and data that cannot be parsed, by its URLs.
// Separated by a zero character; FATAL marks errors that ended a script. The page can neither change nor replace them.
const MOST_LINES = 20;
const LONGEST_LINE = 500;
const { slice: cut, replaceAll } = String.prototype;
const FATAL = "\x01";
const newList = () => {
  let size = 0;
  let lines = "";
  const add = (mark, line) => {
    if (size >= MOST_LINES) return;
    const begin = call(cut, `${line}`, [0, LONGEST_LINE]);
    const plain = call(replaceAll, call(replaceAll, begin, ["\0", ""]), [FATAL, ""]);
    lines += (size++ ? "\0" : "") + mark + plain;
  };
  return { add, lines: () => lines, size: () => size };
};
const complaints = newList();
const malformed = newList();
// Without scripts, the probe begins only when it is asked.
state.late = page.readyState === "complete";
state.errors = () => [complaints.lines(), malformed.lines()];
const note = (mark, text) => complaints.add(mark, text);
const complain = (...parts) => note("", parts.map(String).join(" "));
const place = (file, line, column) => (file ? ` (${file}:${line}:${column})` : "");
listen.call(globalThis, "error", ({ message, filename, lineno, colno }) => {
  if (message) note(FATAL, message + place(filename, lineno, colno));
});
listen.call(globalThis, "unhandledrejection", ({ reason }) => note(FATAL, "Unhandled: " + String(reason)));
listen.call(globalThis, "securitypolicyviolation", (event) => {
  if (event.disposition !== "enforce") return;
  const mark = event.effectiveDirective.startsWith("script-src") ? FATAL : "";
  note(mark, `Content Security Policy: ${event.effectiveDirective} blocks ${event.blockedURI}` +
    place(event.sourceFile, event.lineNumber, event.columnNumber));
});
patch(globalThis.console, "error", (original) => function (...given) {
  try { complain(...given); } catch { /* an object that cannot be converted to text */ }
  return original.apply(this, given);
});

// Data that arrived but cannot be parsed: applications catch the exception and show an error. Libraries also try to
// parse what is no JSON, so of texts, only those that are sent as JSON count, and whole HTML pages, which servers send
// in place of data.
const JSON_TYPE = /^(?:application\/(?:[\w.-]+\+)?json|text\/json)\s*(?:;|$)/i;
const HTML_PAGE = /^\s*<(?:!doctype\s+html|html)\b/i;
const { indexOf, startsWith, trimStart } = String.prototype;
const isHtmlPage = (text) => {
  let rest = text;
  // Not by a pattern, which takes stack for each character of a comment.
  for (;;) {
    rest = call(trimStart, rest, []);
    if (!call(startsWith, rest, ["<!--"])) return matched(HTML_PAGE, rest) !== null;
    const end = call(indexOf, rest, ["-->"]);
    if (end < 0) return false;
    rest = call(cut, rest, [end + 3]);
  }
};
const texts = newMap(); // the last responses with their URLs
const remember = (text, url, type) => {
  if (!matched(JSON_TYPE, type ?? "") && !isHtmlPage(text)) return;
  if (texts.size >= 64) texts.clear();
  texts.set(text, url);
};
patch(Response.prototype, "json", (original) => function (...given) {
  const promise = original.apply(this, given);
  then.call(promise, () => {}, (error) => { if (error instanceof SyntaxError) malformed.add("", this.url); });
  return promise;
});
const headersOf = Object.getOwnPropertyDescriptor(Response.prototype, "headers").get;
const { get: headerOf } = Headers.prototype;
patch(Response.prototype, "text", (original) => function (...given) {
  const promise = original.apply(this, given);
  then.call(promise, (text) => {
    remember(text, this.url, call(headerOf, call(headersOf, this, []), ["Content-Type"]));
  }, () => {});
  return promise;
});
for (const property of ["response", "responseText"]) {
  const descriptor = Object.getOwnPropertyDescriptor(XMLHttpRequest.prototype, property);
  Object.defineProperty(XMLHttpRequest.prototype, property, {
    ...descriptor,
    get() {
      const given = call(descriptor.get, this, []);
      if (this.readyState !== 4) return given;
      if (typeof given === "string") {
        remember(given, this.responseURL, call(getResponseHeader, this, ["Content-Type"]));
      }
      else if (given === null && this.responseType === "json" && this.status === 200) {
        malformed.add("", this.responseURL);
      }
      return given;
    },
  });
}
patch(globalThis.JSON, "parse", (original) => function (text, ...rest) {
  try { return original(text, ...rest); } catch (error) {
    if (texts.has(text)) malformed.add("", texts.get(text));
    throw error;
  }
});

Object.freeze(state);
Object.defineProperty(globalThis, name, { value: state });
