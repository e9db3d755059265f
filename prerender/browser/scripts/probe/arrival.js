// ---- The page that the tab has shown before is not part of the page's past. Reloads are.
const FORGOTTEN = ["unloadEventStart", "unloadEventEnd"];
const [arrival] = performance.getEntriesByType("navigation");
if (globalThis === top && arrival?.type === "navigate") {
  const activation = prototypeOf("NavigationActivation");
  patchAccessor(activation, "from", "get", () => () => null);
  patchAccessor(activation, "navigationType", "get", () => () => "replace");
  for (const owner of [prototypeOf("PerformanceNavigationTiming"), prototypeOf("PerformanceTiming")]) {
    for (const property of FORGOTTEN) patchAccessor(owner, property, "get", () => () => 0);
    patch(owner, "toJSON", (original) => function () {
      return { ...original.call(this), unloadEventStart: 0, unloadEventEnd: 0 };
    });
  }
}
// The browser tells the page when it has cleared the last one's storage. Events caused by scripts have a URL.
const { get: changedBy } = Object.getOwnPropertyDescriptor(prototypeOf("StorageEvent"), "url");
const { stopImmediatePropagation } = Event.prototype;
listen.call(globalThis, "storage", (event) => {
  if (event.isTrusted && !changedBy.call(event)) stopImmediatePropagation.call(event);
}, true);
