// Saves built-ins before the page can replace them, and counts pending work.
export const {
  setTimeout, clearTimeout, setInterval, clearInterval, Element, Promise, Map, Set, WeakMap, WeakSet, Math, Reflect, Node,
  URL, performance,
} = globalThis;
export const { navigation } = /** @type {any} */ (globalThis);
export const { getEntriesByType } = globalThis.Performance.prototype;
export const now = performance.now.bind(performance);
export const { apply: call } = Reflect;
const { exec } = RegExp.prototype;
export const matched = (pattern, text) => call(exec, pattern, [text]);
export const realFrame = globalThis.requestAnimationFrame?.bind(globalThis);
export const report = globalThis.reportError?.bind(globalThis) ?? (() => {});
export const listen = EventTarget.prototype.addEventListener;
export const then = Promise.prototype.then;
export const { querySelector, querySelectorAll } = Document.prototype;
// What scripts hide by variables of their own, such as scrollY, and images of the document by their names.
/** @type {any} */
export const page = {};
const keepReadable = (owner, of, ...properties) => {
  for (const property of properties) {
    const { get } = Object.getOwnPropertyDescriptor(owner, property);
    Object.defineProperty(page, property, { get: () => call(get, of, []) });
  }
};
keepReadable(globalThis, globalThis, "innerHeight", "length", "scrollY");
keepReadable(Document.prototype, document, "documentElement", "head", "readyState", "styleSheets", "title");
keepReadable(Node.prototype, document, "baseURI");
export const name = Symbol.for("prerender.probe");
export const FRAME_MS = 16; // an integer: setTimeout() truncates

// ---- Pending work: only counts and times, so that a query is cheap.
// Own properties, so that changed prototypes have no effect.
export const own = (collection, type) => {
  for (const method of ["add", "clear", "delete", "forEach", "get", "has", "set", "values"]) {
    if (type.prototype[method]) collection[method] = type.prototype[method];
  }
  return collection;
};
export const newMap = () => own(new Map(), Map);
export const newSet = () => own(new Set(), Set);
export const newWeakMap = () => own(new WeakMap(), WeakMap);
export const newWeakSet = () => own(new WeakSet(), WeakSet);
export const timers = newMap(); // id -> when a one-shot timer is due
export const intervals = newSet();
export const open = { working: 0, layout: 0, drawn: 0, talking: 0 }; // work outside virtual time
export let activity = 0; // grows with each event of that work; constant if it hangs
export let fetching = 0; // requests by script whose response has not begun
export let mutations = 0;
export const countActivity = () => { activity++; };
export const countFetches = (change) => { fetching += change; };
export const countMutations = (more) => { mutations += more; };

export const begin = (kind = "working") => {
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

export const patch = (owner, method, make) => {
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
export const patchEach = (owner, methods, make) => {
  for (const method of methods) patch(owner, method, make);
};
export const prototypeOf = (type) => globalThis[type]?.prototype;
export const patchAccessor = (owner, property, accessor, make) => {
  const descriptor = owner && Object.getOwnPropertyDescriptor(owner, property);
  if (!descriptor?.[accessor]) return;
  Object.defineProperty(owner, property, { ...descriptor, [accessor]: make(descriptor[accessor]) });
};
