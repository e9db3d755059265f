import {
  call, listen, newSet, newWeakSet, patch, patchAccessor, patchEach, prototypeOf, querySelectorAll,
} from "./core.js";
import { observeRoot } from "./document.js";

// ---- Closed shadow roots are closed only to the page's scripts: the serializer must read them.
const closed = newWeakSet();
export const shadowRoots = newSet();
const addRoot = (root) => {
  shadowRoots.add(root);
  observeRoot(root);
};
patch(prototypeOf("Element"), "attachShadow", (original) => function (options, ...rest) {
  const hidden = options?.mode === "closed";
  const root = original.call(this, hidden ? { ...options, mode: "open" } : options, ...rest);
  addRoot(root);
  if (hidden) closed.add(root);
  return root;
});
export const shadowRootOf = Object.getOwnPropertyDescriptor(prototypeOf("Element"), "shadowRoot").get;

// Those that markup declares: of the document, and of what scripts parse with them.
const { querySelectorAll: allInHost } = Element.prototype;
const { querySelectorAll: allInShadow } = DocumentFragment.prototype;
const addDeclared = (elements) => {
  for (let i = 0; i < elements.length; i++) {
    const root = call(shadowRootOf, elements[i], []);
    if (!root || shadowRoots.has(root)) continue;
    addRoot(root);
    addDeclared(call(allInShadow, root, ["*"]));
  }
};
listen.call(globalThis, "DOMContentLoaded", () => addDeclared(call(querySelectorAll, document, ["*"])), true);
const findIn = (type, all) => patchEach(prototypeOf(type), ["setHTML", "setHTMLUnsafe"], (original) => function (...given) {
  const result = original.apply(this, given);
  addDeclared(call(all, this, ["*"]));
  return result;
});
findIn("Element", allInHost);
findIn("ShadowRoot", allInShadow);

export const hide = (owner, property, replace) => {
  patchAccessor(owner, property, "get", (original) => function () {
    return replace(original.call(this), this);
  });
};
hide(prototypeOf("Element"), "shadowRoot", (root) => (root && closed.has(root) ? null : root));
hide(prototypeOf("ShadowRoot"), "mode", (mode, root) => (closed.has(root) ? "closed" : mode));
