// Saves built-ins before the page can replace them, and counts pending work.
const name = Symbol.for("prerender.probe");
// Skipped in the blank page between two renders, to save time.
if (globalThis[name] || (globalThis === top && location.href === "about:blank")) return;

const { setTimeout, clearTimeout, setInterval, clearInterval, Promise, Map, Set, WeakSet, Math, Reflect } =
  globalThis;
const now = performance.now.bind(performance);
const { apply: call } = Reflect;
const realFrame = globalThis.requestAnimationFrame?.bind(globalThis);
const report = globalThis.reportError?.bind(globalThis) ?? (() => {});
const listen = EventTarget.prototype.addEventListener;
const then = Promise.prototype.then;
const FRAME_MS = 16; // an integer: setTimeout() truncates

// ---- Pending work: only counts and times, so that a query is cheap.
// Own properties, so that changed prototypes have no effect.
const own = (collection, type) => {
  for (const method of ["add", "clear", "delete", "forEach", "get", "has", "set", "values"]) {
    if (type.prototype[method]) collection[method] = type.prototype[method];
  }
  return collection;
};
const newMap = () => own(new Map(), Map);
const newSet = () => own(new Set(), Set);
const newWeakSet = () => own(new WeakSet(), WeakSet);
const timers = newMap(); // id -> when a one-shot timer is due
const intervals = newSet();
const open = { working: 0, layout: 0, drawn: 0, talking: 0, delivering: 0 }; // work outside virtual time
let activity = 0; // grows with each event of that work; constant if it hangs
let fetching = 0; // requests by script whose response has not begun
let mutations = 0;

const begin = (kind = "working") => {
  let ended = false;
  open[kind]++;
  activity++;
  return () => {
    if (ended) return;
    ended = true;
    open[kind]--;
    activity++;
  };
};

const patch = (owner, method, make) => {
  const original = owner?.[method];
  if (typeof original !== "function") return;
  const replacement = make(original);
  Object.defineProperty(replacement, "name", { value: method });
  Object.defineProperty(replacement, "length", { value: original.length });
  const old = Object.getOwnPropertyDescriptor(owner, method);
  Object.defineProperty(owner, method, {
    configurable: true, writable: true, enumerable: old?.enumerable ?? true, value: replacement,
  });
};
const patchEach = (owner, methods, make) => {
  for (const method of methods) patch(owner, method, make);
};
const patchAccessor = (owner, property, accessor, make) => {
  const descriptor = owner && Object.getOwnPropertyDescriptor(owner, property);
  if (!descriptor?.[accessor]) return;
  Object.defineProperty(owner, property, { ...descriptor, [accessor]: make(descriptor[accessor]) });
};
