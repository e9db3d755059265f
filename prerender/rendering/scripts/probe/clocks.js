// ---- Clocks stand still while a script runs: one that waits for them in a loop would never end.
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
const OriginalDate = globalThis.Date;
const dateNow = unstuck(OriginalDate.now.bind(OriginalDate));
patch(OriginalDate, "now", () => function () { return Math.floor(dateNow()); });
patch(Performance.prototype, "now", () => unstuck(now));
const WatchedDate = new Proxy(OriginalDate, {
  construct(target, given, newTarget) {
    return Reflect.construct(target, given.length ? given : [Math.floor(dateNow())], newTarget);
  },
});
OriginalDate.prototype.constructor = WatchedDate;
Object.defineProperty(globalThis, "Date", { configurable: true, writable: true, value: WatchedDate });

// A delay as the browser understands it: ToInt32, and nothing is negative (HTML, section 8.6).
const delayOf = (delay) => Math.max(0, delay | 0);
