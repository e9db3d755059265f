// ---- What is told with the next real frame.
const untilFrame = () => {
  if (!realFrame) return;
  const end = begin("layout");
  realFrame(() => realFrame(end));
};
const untilFrameAfter = (owner, ...methods) => {
  for (const method of methods) {
    patch(owner, method, (original) => function (...given) {
      untilFrame();
      return original.apply(this, given);
    });
  }
};
untilFrameAfter(globalThis, "scroll", "scrollBy", "scrollTo", "resizeBy", "resizeTo");
untilFrameAfter(prototypeOf("Element"), "scroll", "scrollBy", "scrollIntoView", "scrollTo");
for (const property of ["scrollTop", "scrollLeft"]) {
  const descriptor = Object.getOwnPropertyDescriptor(Element.prototype, property);
  Object.defineProperty(Element.prototype, property, {
    ...descriptor, set(value) { untilFrame(); descriptor.set.call(this, value); },
  });
}
patch(prototypeOf("Document"), "startViewTransition", (original) => function (...given) {
  const transition = original.apply(this, given);
  const end = begin();
  then.call(transition.finished, end, end);
  return transition;
});

// ---- Observers of layout are told with a real frame, and again with the next one when what they do
// changes the layout. What has not come into view yet may be a part that loads when it is seen.
const unseen = newSet();
for (const type of ["IntersectionObserver", "ResizeObserver"]) {
  const Original = globalThis[type];
  if (!Original) continue;
  const Watched = new Proxy(Original, {
    construct(target, [callback, ...rest], newTarget) {
      if (typeof callback !== "function") return Reflect.construct(target, [callback, ...rest], newTarget);
      return Reflect.construct(target, [function (entries, ...given) {
        untilFrame();
        for (const { target: seen, isIntersecting } of entries) {
          if (isIntersecting === true) unseen.delete(seen);
        }
        return callback.call(this, entries, ...given);
      }, ...rest], newTarget);
    },
  });
  Original.prototype.constructor = Watched;
  Object.defineProperty(globalThis, type, { configurable: true, writable: true, value: Watched });
  const intersection = type === "IntersectionObserver";
  untilFrameAfter(Original.prototype, "observe");
  patch(Original.prototype, "observe", (original) => function (...given) {
    if (intersection) unseen.add(given[0]);
    return original.apply(this, given);
  });
  patch(Original.prototype, "unobserve", (original) => function (...given) {
    if (intersection) unseen.delete(given[0]);
    return original.apply(this, given);
  });
  patch(Original.prototype, "disconnect", (original) => function () {
    if (intersection) unseen.clear();
    return original.call(this);
  });
}
