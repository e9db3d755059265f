import { Math, now, patch, Reflect } from "./core.js";

// ---- Virtual clocks are paused while a script runs: one that waits for them in a loop would never end.
const PATIENT_CALLS = 1000;
let skew = 0;
const unstuck = (read) => {
  let last = NaN;
  let calls = 0;
  return () => {
    const time = read();
    if (time !== last) { last = time; calls = 0; } else if (++calls > PATIENT_CALLS) skew += 0.1;
    return time + skew;
  };
};
// How far the browser's clock was ahead of real time when the page was opened, because of the virtual time of earlier
// pages.
let leadMilliseconds = 0;
export const lead = (milliseconds) => { leadMilliseconds = milliseconds; };
const OriginalDate = globalThis.Date;
const readDate = unstuck(OriginalDate.now.bind(OriginalDate));
const dateNow = () => Math.floor(readDate() - leadMilliseconds);
patch(OriginalDate, "now", () => function () { return dateNow(); });
// performance.now() begins at 0 with the page, whatever the clock says. Browsers coarsen it by up to 0.1 ms.
const started = now();
export const pageTime = () => Math.round(now() - started);
patch(Performance.prototype, "now", () => unstuck(pageTime));
const { get: timeOrigin, ...timeOriginProperty } =
  Object.getOwnPropertyDescriptor(Performance.prototype, "timeOrigin");
Object.defineProperty(Performance.prototype, "timeOrigin", {
  ...timeOriginProperty, get() { return timeOrigin.call(this) + started - leadMilliseconds; },
});
const WatchedDate = new Proxy(OriginalDate, {
  construct(target, given, newTarget) {
    return Reflect.construct(target, given.length ? given : [dateNow()], newTarget);
  },
  apply(target) { return `${new target(dateNow())}`; },
});
OriginalDate.prototype.constructor = WatchedDate;
Object.defineProperty(globalThis, "Date", { configurable: true, writable: true, value: WatchedDate });

// A delay as the browser converts it: ToInt32, and not negative (HTML, section 8.6).
export const delayOf = (delay) => Math.max(0, delay | 0);
