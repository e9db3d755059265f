import { newSet, newWeakSet, patch, patchAccessor, prototypeOf } from "./core.js";

// ---- Closed shadow roots are closed only to the page's scripts: the serializer must read them.
const closed = newWeakSet();
export const shadowRoots = newSet();
patch(prototypeOf("Element"), "attachShadow", (original) => function (options, ...rest) {
  const hidden = options?.mode === "closed";
  const root = original.call(this, hidden ? { ...options, mode: "open" } : options, ...rest);
  shadowRoots.add(root);
  if (hidden) closed.add(root);
  return root;
});
export const shadowRootOf = Object.getOwnPropertyDescriptor(prototypeOf("Element"), "shadowRoot").get;
export const hide = (owner, property, replace) => {
  patchAccessor(owner, property, "get", (original) => function () {
    return replace(original.call(this), this);
  });
};
hide(prototypeOf("Element"), "shadowRoot", (root) => (root && closed.has(root) ? null : root));
hide(prototypeOf("ShadowRoot"), "mode", (mode, root) => (closed.has(root) ? "closed" : mode));
