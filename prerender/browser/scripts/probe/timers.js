import { computeStyle, computeStyleInTime } from "./animations.js";
import { delayOf, pageTime } from "./clocks.js";
import {
  call, clearTimeout, FRAME_MS, intervals, listen, Math, newMap, now, patch, report, setTimeout, then, timers,
} from "./core.js";

// An id as the browser converts it: pages also keep them as texts.
const numberOf = (id) => id | 0;

// ---- Timers: virtual time runs them, the probe only tracks them.
patch(globalThis, "setTimeout", (original) => function (callback, delay, ...rest) {
  if (typeof callback !== "function") {
    const id = original.call(globalThis, callback, delay, ...rest);
    timers.set(id, now() + delayOf(delay));
    original.call(globalThis, () => timers.delete(id), delay);
    return id;
  }
  const id = original.call(globalThis, function (...given) {
    timers.delete(id);
    computeStyleInTime();
    return callback.apply(this, given);
  }, delay, ...rest);
  timers.set(id, now() + delayOf(delay));
  return id;
});
patch(globalThis, "setInterval", (original) => function (...given) {
  const id = original.apply(globalThis, given);
  intervals.add(id);
  return id;
});
for (const method of ["clearTimeout", "clearInterval"]) {
  // Either clears both kinds (HTML, section 8.6).
  patch(globalThis, method, (original) => function (id) {
    original.call(globalThis, id);
    timers.delete(numberOf(id));
    intervals.delete(numberOf(id));
  });
}

patch(globalThis.Scheduler?.prototype, "postTask", (original) => function (callback, options) {
  const promise = original.apply(this, arguments);
  const key = {};
  timers.set(key, now() + delayOf(options?.delay));
  const end = () => timers.delete(key);
  then.call(promise, end, end);
  return promise;
});
patch(globalThis.AbortSignal, "timeout", (original) => function (delay) {
  const signal = original.apply(this, arguments);
  timers.set(signal, now() + delayOf(delay));
  listen.call(signal, "abort", () => timers.delete(signal));
  return signal;
});

// ---- Animation frames: every 16 ms of virtual time, without a frame of the browser.
export let frames = newMap();
let due = newMap(); // the frames that are run now
let nextFrame = 0;
const flushFrames = () => {
  due = frames;
  frames = newMap();
  const time = pageTime();
  computeStyle();
  due.forEach((callback) => {
    try { call(callback, globalThis, [time]); } catch (error) { report(error); }
  });
  computeStyle();
};
if (globalThis.requestAnimationFrame) {
  patch(globalThis, "requestAnimationFrame", () => function (callback) {
    if (typeof callback !== "function") throw new TypeError("parameter 1 is not of type 'Function'.");
    if (frames.size === 0) setTimeout.call(globalThis, flushFrames, FRAME_MS - (pageTime() % FRAME_MS));
    frames.set(++nextFrame, callback);
    return nextFrame;
  });
  patch(globalThis, "cancelAnimationFrame", () => function (id) {
    frames.delete(numberOf(id));
    due.delete(numberOf(id));
  });
}

// ---- Idle callbacks: at the end of a slice the page is idle.
export const idle = newMap();
patch(globalThis, "requestIdleCallback", () => function (callback) {
  if (typeof callback !== "function") throw new TypeError("parameter 1 is not of type 'Function'.");
  const id = setTimeout.call(globalThis, () => {
    idle.delete(id);
    const end = now() + 50;
    callback({ didTimeout: false, timeRemaining: () => Math.max(0, end - now()) });
  }, 1);
  idle.set(id, now());
  return id;
});
patch(globalThis, "cancelIdleCallback", () => function (id) {
  if (idle.delete(numberOf(id))) clearTimeout.call(globalThis, id);
});
