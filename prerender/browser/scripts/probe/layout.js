import {
  begin, call, countActivity, listen, newMap, newSet, newWeakMap, newWeakSet, now, patch, patchAccessor, prototypeOf,
  Reflect, setTimeout, timers,
} from "./core.js";

// ---- Events that a frame dispatches. settling/ requests a frame only if these are pending.
export let frameWanted = false;
export const forgetFrame = () => { frameWanted = false; }; // settling/ draws one now
export const wantFrame = () => { frameWanted = true; };
const wantFrameAfter = (owner, ...methods) => {
  for (const method of methods) {
    patch(owner, method, (original) => function (...given) {
      wantFrame();
      return original.apply(this, given);
    });
  }
};
export const onAccess = (owner, property, accessor, notice) => {
  patchAccessor(owner, property, accessor, (original) => function (...given) {
    notice();
    return call(original, this, given);
  });
};

// ---- Scroll events come with a frame, the end of smooth scrolling with a later one.
const SMOOTH_MS = 1000;
const willScroll = () => {
  wantFrame();
  const key = {};
  const end = () => timers.delete(key);
  timers.set(key, now() + SMOOTH_MS);
  listen.call(document, "scrollend", end, { capture: true, once: true });
  setTimeout.call(globalThis, end, SMOOTH_MS);
};
/** @param {any[]} given */
const isSmooth = ([first]) => first?.behavior === "smooth";
for (const [owner, methods] of [
  [globalThis, ["scroll", "scrollBy", "scrollTo"]],
  [prototypeOf("Element"), ["scroll", "scrollBy", "scrollIntoView", "scrollTo"]],
]) {
  for (const method of methods) {
    patch(owner, method, (original) => function (...given) {
      if (isSmooth(given)) willScroll(); else wantFrame();
      return original.apply(this, given);
    });
  }
}
for (const property of ["scrollTop", "scrollLeft"]) onAccess(prototypeOf("Element"), property, "set", wantFrame);

// Paint timings come with a drawn frame, or never: a page may have nothing to paint.
const { PerformanceObserver } = globalThis;
const { observe, disconnect } = prototypeOf("PerformanceObserver");
const PAINTED = ["paint", "largest-contentful-paint", "element"];
const painted = {};
patch(prototypeOf("PerformanceObserver"), "observe", (original) => function (...given) {
  const result = original.apply(this, given);
  const { type, entryTypes } = given[0];
  for (const kind of PAINTED) {
    if (painted[kind] || (type !== kind && !entryTypes?.includes(kind))) continue;
    painted[kind] = true;
    const end = begin("drawn");
    const key = {};
    const observer = new PerformanceObserver(() => stop());
    const stop = () => { timers.delete(key); call(disconnect, observer, []); end(); };
    call(observe, observer, [{ type: kind, buffered: true }]);
    timers.set(key, now() + SMOOTH_MS);
    setTimeout.call(globalThis, stop, SMOOTH_MS);
  }
  return result;
});
// Layout requests fonts; frames decode images and show videos.
onAccess(prototypeOf("FontFaceSet"), "ready", "get", wantFrame);
wantFrameAfter(prototypeOf("HTMLImageElement"), "decode");
patch(prototypeOf("HTMLVideoElement"), "requestVideoFrameCallback", (original) => function (callback) {
  const end = begin("drawn");
  const key = {};
  timers.set(key, now() + SMOOTH_MS);
  setTimeout.call(globalThis, () => { timers.delete(key); end(); }, SMOOTH_MS);
  return original.call(this, function (...given) { timers.delete(key); end(); return callback.apply(this, given); });
});

// ---- Layout observers are notified with a frame, and again with the next one if they change the layout. Elements
// that are not visible yet may be lazy content.
export const unseen = newMap(); // element -> how many observers wait for it
const awaitedBy = newWeakMap(); // observer -> the elements that it waits for
export const awaitSight = (observer, element) => {
  let elements = awaitedBy.get(observer);
  if (!elements) awaitedBy.set(observer, elements = newSet());
  if (elements.has(element)) return;
  elements.add(element);
  unseen.set(element, (unseen.get(element) ?? 0) + 1);
};
const endAwaiting = (observer, element) => {
  if (!awaitedBy.get(observer)?.delete(element)) return;
  const others = unseen.get(element) - 1;
  if (others) unseen.set(element, others); else unseen.delete(element);
};
export let observers = 0; // observers with targets
for (const type of ["IntersectionObserver", "ResizeObserver"]) {
  const Original = globalThis[type];
  if (!Original) continue;
  const Watched = new Proxy(Original, {
    construct(target, [callback, ...rest], newTarget) {
      if (typeof callback !== "function") return Reflect.construct(target, [callback, ...rest], newTarget);
      return Reflect.construct(target, [function (entries, ...given) {
        countActivity();
        wantFrame();
        for (const { target: seen, isIntersecting } of entries) {
          if (isIntersecting === true) endAwaiting(this, seen);
        }
        return callback.call(this, entries, ...given);
      }, ...rest], newTarget);
    },
  });
  Original.prototype.constructor = Watched;
  Object.defineProperty(globalThis, type, { configurable: true, writable: true, value: Watched });
  const intersection = type === "IntersectionObserver";
  const observing = newWeakSet();
  patch(Original.prototype, "observe", (original) => function (...given) {
    const result = original.apply(this, given);
    wantFrame();
    if (intersection) awaitSight(this, given[0]);
    if (!observing.has(this)) { observing.add(this); observers++; }
    return result;
  });
  patch(Original.prototype, "unobserve", (original) => function (...given) {
    const result = original.apply(this, given);
    if (intersection) endAwaiting(this, given[0]);
    return result;
  });
  patch(Original.prototype, "disconnect", (original) => function () {
    awaitedBy.get(this)?.forEach((element) => endAwaiting(this, element));
    if (observing.delete(this)) observers--;
    return original.call(this);
  });
}
