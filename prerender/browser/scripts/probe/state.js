import { animationEnds } from "./animations.js";
import { getResponseHeader, nameOf, openedUrls, unused, usage } from "./async_work.js";
import { acknowledged, pushed } from "./channels.js";
import { lead, pageTime } from "./clocks.js";
import {
  activity, call, Element, fetching, getEntriesByType, intervals, listen, matched, mutations, name, newMap, now, open, page,
  patch, patchAccessor, performance, prototypeOf, querySelector, then, timers,
} from "./core.js";
import { countPendingMutations, forEachFrame, foreign, mutationsAtMessage, parsed, refreshDue } from "./document.js";
import { attached, attachments } from "./internals.js";
import { forgetFrame, frameWanted, observers, wantFrame } from "./layout.js";
import { height, listensToScrolling, nextToVisit, restore, shown, tour, waitingToBeSeen } from "./lazy_content.js";
import { refusedStyles, restyled, ruleSources, touchedSheets } from "./sheets.js";
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
    errors: complaints + malformed.size,
    sheets: touchedSheets.size + ruleSources.size,
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
let complaints = 0;
let complaintLines = "";
const note = (mark, line) => {
  if (complaints >= MOST_LINES) return;
  const begin = call(cut, `${line}`, [0, LONGEST_LINE]);
  const plain = call(replaceAll, call(replaceAll, begin, ["\0", ""]), [FATAL, ""]);
  complaintLines += (complaints++ ? "\0" : "") + mark + plain;
};
const malformed = newMap(); // texts with their URLs
// Without scripts, the probe begins only when it is asked.
state.late = page.readyState === "complete";
state.errors = () => {
  let urls = "";
  malformed.forEach((url) => { urls += "\0" + url; });
  return [complaintLines, urls];
};
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

// Data that arrived but cannot be parsed: applications catch the exception and show an error. But libraries try to parse
// any text, and applications what may be empty or a plain word. So a text counts only if it is JSON that was cut short,
// or markup, which servers send in place of data. Of what JSON.parse gets, only what was sent as JSON counts, and whole
// HTML pages. A redirect to markup is none: it leads to a login, and so is what a 401 is.
const JSON_TYPE = /^(?:application\/(?:[\w.-]+\+)?json|text\/json)\s*(?:;|$)/i;
const CUT_SHORT = /^\s*[[{"]/;
const MARKUP = /^\s*</;
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
const isFaulty = (text, isRedirected) =>
  matched(CUT_SHORT, text) !== null || (!isRedirected && matched(MARKUP, text) !== null);
const noteMalformed = (text, url) => {
  if (malformed.size >= MOST_LINES) return;
  malformed.set(text, call(cut, url, [0, LONGEST_LINE]));
  if (matched(MARKUP, text)) watchMarkup();
};
// A page that is parsed as HTML is not missed as JSON: axios tries that first with all texts.
let watchMarkup = () => {
  watchMarkup = () => {};
  const forget = (text) => { malformed.delete(text); };
  const asArgument = (at) => (original) => function (...given) {
    forget(given[at]);
    return original.apply(this, given);
  };
  patch(prototypeOf("DOMParser"), "parseFromString", asArgument(0));
  patch(prototypeOf("Range"), "createContextualFragment", asArgument(0));
  patch(Element.prototype, "insertAdjacentHTML", asArgument(1));
  const asValue = (original) => function (value) {
    forget(value);
    return call(original, this, [value]);
  };
  patchAccessor(Element.prototype, "innerHTML", "set", asValue);
  patchAccessor(prototypeOf("ShadowRoot"), "innerHTML", "set", asValue);
  patchAccessor(prototypeOf("HTMLIFrameElement"), "srcdoc", "set", asValue);
};
const texts = newMap(); // the last responses with their URLs
const remember = (text, url, type, isRedirected) => {
  if (!isFaulty(text, isRedirected) || !(matched(JSON_TYPE, type ?? "") || isHtmlPage(text))) return;
  if (texts.size >= 64) texts.clear();
  texts.set(text, url);
};
const ofResponse = Object.getOwnPropertyDescriptors(Response.prototype);
const { body: responseBodyOf, bodyUsed: bodyUsedOf, headers: headersOf } = ofResponse;
const { redirected: redirectedOf, url: responseUrlOf } = ofResponse;
const { get: isLocked } = Object.getOwnPropertyDescriptor(ReadableStream.prototype, "locked");
const { get: headerOf } = Headers.prototype;
const ResponseType = Response;
const { text: readText } = ResponseType.prototype;
const { parse } = JSON;
const isReadable = (response) => {
  try {
    const body = call(responseBodyOf.get, response, []);
    return body !== null && !call(bodyUsedOf.get, response, []) && !call(isLocked, body, []);
  } catch { return false; /* no response */ }
};
patch(Response.prototype, "json", (original) => function (...given) {
  if (!isReadable(this)) return original.apply(this, given); // with its error
  return then.call(call(readText, this, []), (text) => {
    try { return parse(text); } catch {
      if (isFaulty(text, call(redirectedOf.get, this, []))) noteMalformed(text, call(responseUrlOf.get, this, []));
      // With the browser's own message. Both methods drop one byte order mark.
      return call(original, new ResponseType(`\ufeff${text}`), []);
    }
  });
});
patch(Response.prototype, "text", (original) => function (...given) {
  const promise = original.apply(this, given);
  then.call(promise, (text) => {
    const type = call(headerOf, call(headersOf.get, this, []), ["Content-Type"]);
    remember(text, this.url, type, call(redirectedOf.get, this, []));
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
      const url = this.responseURL;
      const type = call(getResponseHeader, this, ["Content-Type"]);
      const isRedirected = openedUrls.get(this) !== url;
      if (typeof given === "string") remember(given, url, type, isRedirected);
      else if (given === null && this.responseType === "json" && this.status === 200) {
        // Its text is not known.
        if (!isRedirected || matched(JSON_TYPE, type ?? "")) noteMalformed(url, url);
      }
      return given;
    },
  });
}
patch(globalThis.JSON, "parse", (original) => function (text, ...rest) {
  try { return original(text, ...rest); } catch (error) {
    if (texts.has(text)) noteMalformed(text, texts.get(text));
    throw error;
  }
});

Object.freeze(state);
Object.defineProperty(globalThis, name, { value: state });
