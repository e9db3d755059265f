import {
  begin, call, countActivity, Element, listen, matched, Math, navigation, newMap, newSet, Node, page, patch,
  querySelectorAll, realFrame,
} from "./core.js";
import { forEachFrame } from "./document.js";
import { awaitSight, unseen, wantFrame } from "./layout.js";
import { shadowRoots } from "./shadow.js";

// ---- Content that waits to become visible: observed elements, lazy images, and scroll listeners.
const lazy = 'img[loading="lazy"], iframe[loading="lazy"]';
const { querySelectorAll: querySelectorAllWithin } = DocumentFragment.prototype;
const { getBoundingClientRect, getClientRects, scrollIntoView } = Element.prototype;
const { dispatchEvent } = EventTarget.prototype;
const { Event: ScrollEvent } = globalThis;
const parentElement = Object.getOwnPropertyDescriptor(Node.prototype, "parentElement").get;
const isConnected = Object.getOwnPropertyDescriptor(Node.prototype, "isConnected").get;
const scrollWindow = globalThis.scrollTo?.bind(globalThis);
const scrolled = newSet(); // targets of scroll listeners
const visited = newSet(); // elements that were scrolled to, with or without effect
patch(EventTarget.prototype, "addEventListener", (original) => function (...given) {
  const result = original.apply(this, given);
  if (given[0] === "scroll") scrolled.add(this ?? globalThis);
  if (given[0] === "contentvisibilityautostatechange" && this instanceof Element) awaitSight(this, this);
  return result;
});
const unloaded = () => {
  const elements = [];
  const add = (found) => {
    for (let i = 0; i < found.length; i++) {
      // A frame that is not loaded is blank; one of another origin cannot be inspected.
      if (found[i].complete === false || found[i].contentDocument?.URL === "about:blank") {
        elements[elements.length] = found[i];
      }
    }
  };
  add(querySelectorAll.call(document, lazy));
  shadowRoots.forEach((root) => add(querySelectorAllWithin.call(root, lazy)));
  return elements;
};
// Loading so many only for the pixels would take longer than everything else, and exceed the limit of requests.
const MOST_UNLOADED = 200;
export const waitingToBeSeen = () => {
  const waiting = newSet();
  const add = (element) => { if (call(isConnected, element, []) && !visited.has(element)) waiting.add(element); };
  unseen.forEach((_, element) => add(element));
  const found = unloaded();
  for (let i = 0; i < found.length && found.length <= MOST_UNLOADED; i++) add(found[i]);
  return waiting;
};
export const listensToScrolling = () => Boolean(scrolled.size || globalThis.onscroll || document.onscroll);

// ---- What a page says of itself before anything is shown. Those that change their URL when a reader scrolls, to that of
// the article or section in view, take its title and metadata, too, which are not those of the requested page.
const METADATA = 'head > :is(title, meta[name], meta[property], link[rel~="canonical" i], link[rel~="alternate" i], ' +
  'script[type="application/ld+json" i])';
const { cloneNode, isEqualNode, appendChild } = Node.prototype;
const { remove: removeElement, replaceWith } = Element.prototype;
const { replaceState } = History.prototype;
const { stopImmediatePropagation } = ScrollEvent.prototype;
const { history } = globalThis;
const metadata = () => call(querySelectorAll, document, [METADATA]);
// An application that begins when it is visible has nothing of its own to restore.
const PLACEHOLDER = /^(?:loading|.{0,30}(?:…|\.{3}))?$/i;
// Ordinary fragments are places in the page.
const placeInSite = () => location.pathname + (location.hash[1] === "!" ? location.hash : "");
let before = null;
let isRestored = false;
const noteMetadata = () => {
  if (before || matched(PLACEHOLDER, page.title)) return;
  const found = metadata(), tags = [];
  for (let i = 0; i < found.length; i++) tags[i] = call(cloneNode, found[i], [true]);
  before = { url: location.href, search: location.search, place: placeInSite(), tags };
};
// A router would follow the change of the URL.
for (const type of ["navigate", "currententrychange", "navigatesuccess"]) {
  listen.call(navigation, type, (event) => { if (isRestored) call(stopImmediatePropagation, event, []); });
}
export const restore = () => {
  if (!before) return;
  const moved = placeInSite() !== before.place;
  if (!moved && location.search === before.search) return;
  isRestored = true;
  call(replaceState, history, [null, "", before.url]);
  // Another query may be a state of the same page, which has completed its metadata.
  if (!moved) return;
  const found = metadata(), { tags } = before;
  for (let i = 0; i < found.length || i < tags.length; i++) {
    if (i >= found.length) call(appendChild, page.head, [tags[i]]);
    else if (i >= tags.length) call(removeElement, found[i], []);
    else if (!call(isEqualNode, found[i], [tags[i]])) call(replaceWith, found[i], [tags[i]]);
  }
};

// The window height that shows the whole page, including the content of scrolling elements. It is asked first.
export const height = () => {
  noteMetadata();
  if (unloaded().length > MOST_UNLOADED) return 0;
  let highest = page.documentElement?.scrollHeight ?? 0;
  const reach = (bottom) => { highest = Math.max(highest, Math.ceil(bottom + page.scrollY)); };
  waitingToBeSeen().forEach((element) => reach(getBoundingClientRect.call(element).bottom));
  scrolled.forEach((target) => {
    if (target instanceof Element) reach(getBoundingClientRect.call(target).top + target.scrollHeight);
  });
  return highest;
};

// Everything is in the window now. Dispatch scroll events, because nothing can be scrolled any more.
export const shown = () => {
  wantFrame();
  realFrame(() => {
    const told = newSet();
    if (globalThis.onscroll || document.onscroll) told.add(document);
    scrolled.forEach((target) => told.add(target === globalThis ? document : target));
    told.forEach((target) => {
      if (!(target instanceof Node)) return;
      dispatchEvent.call(target, new ScrollEvent("scroll", { bubbles: target === document }));
    });
  });
};

// Whether an element can be scrolled to: one of this page or its frames, with a box (undisplayed ones have none).
export const nextToVisit = () => {
  let next = null;
  waitingToBeSeen().forEach((element) => {
    if (!next && getClientRects.call(element).length) next = { element, visited };
  });
  forEachFrame((probe) => { next ??= probe.sight.nextToVisit(); });
  return next;
};

// Scrolls through the page like a reader: down by a window's height with each frame, then to each element that was
// not visible yet (in scrolling elements), and back.
const MOST_STEPS = 20;
const MOST_VISITS = 50;
export const tour = () => {
  const end = begin("layout");
  const start = page.scrollY;
  const moved = newMap();
  let steps = 0;
  const down = () => {
    countActivity();
    const top = page.innerHeight * ++steps;
    if (steps > MOST_STEPS || top >= page.documentElement.scrollHeight) return around();
    scrollWindow({ top, behavior: "instant" });
    realFrame(down);
  };
  const around = () => {
    countActivity();
    const next = visited.size < MOST_VISITS ? nextToVisit() : null;
    if (!next) return back();
    next.visited.add(next.element);
    for (let at = call(parentElement, next.element, []); at; at = call(parentElement, at, [])) {
      if (!moved.has(at)) moved.set(at, [at.scrollLeft, at.scrollTop]);
    }
    scrollIntoView.call(next.element, { block: "center", inline: "center", behavior: "instant" });
    realFrame(around);
  };
  const back = () => {
    moved.forEach(([left, top], element) => {
      if (element.scrollLeft !== left) element.scrollLeft = left;
      if (element.scrollTop !== top) element.scrollTop = top;
    });
    scrollWindow({ top: start, behavior: "instant" });
    realFrame(end);
  };
  realFrame(down);
};
