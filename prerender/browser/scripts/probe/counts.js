// What the browser gives, taken before the page can replace it, and the counts of what is going on.
const name = Symbol.for("prerender.probe");
// The blank page between two renders is not worth the time that all this takes.
if (globalThis[name] || (globalThis === top && location.href === "about:blank")) return;

const { setTimeout, clearTimeout, setInterval, clearInterval, Promise, Map, Set, Math, Reflect } =
  globalThis;
const now = performance.now.bind(performance);
const { apply: call } = Reflect;
const realFrame = globalThis.requestAnimationFrame?.bind(globalThis);
const report = globalThis.reportError?.bind(globalThis) ?? (() => {});
const listen = EventTarget.prototype.addEventListener;
const then = Promise.prototype.then;
const FRAME_MS = 16; // a whole number: setTimeout() knows no other

// ---- What is going on. Only counts and times, so that asking is cheap.
// What these are asked to do is theirs, whatever a page makes of the prototypes.
const own = (collection, type) => {
  for (const method of ["add", "clear", "delete", "forEach", "get", "has", "set", "values"]) {
    if (type.prototype[method]) collection[method] = type.prototype[method];
  }
  return collection;
};
const newMap = () => own(new Map(), Map);
const newSet = () => own(new Set(), Set);
const timers = newMap(); // id -> when a one-shot timer is due
const intervals = newSet();
const open = { working: 0, layout: 0, drawn: 0, talking: 0 }; // what is under way outside virtual time
let activity = 0; // grows with whatever happens there; stays when something hangs
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
