import { call, Element, newWeakMap, page, patch, prototypeOf } from "./core.js";
import { shadowRootOf } from "./shadow.js";

// ---- Roles, ARIA properties and states that scripts attach to custom elements (ElementInternals). No attribute has
// them. Elements are numbered as the serializer visits them: those of a root, then those of each shadow root in it.
const internalsOf = newWeakMap();
export let attachments = 0;
patch(prototypeOf("HTMLElement"), "attachInternals", (original) => function (...given) {
  const internals = original.apply(this, given);
  internalsOf.set(this, internals);
  attachments++;
  return internals;
});
const MOST_ATTACHED = 2000;
const getters = [];
const statesOf = globalThis.ElementInternals &&
  Object.getOwnPropertyDescriptor(prototypeOf("ElementInternals"), "states")?.get;
const forEachState = prototypeOf("CustomStateSet")?.forEach;
for (const [property, { get }] of Object.entries(
  Object.getOwnPropertyDescriptors(prototypeOf("ElementInternals") ?? {}))) {
  const isText = property === "role" || (property.startsWith("aria") && !/Elements?$/.test(property));
  if (get && isText) {
    getters.push([property === "role" ? property : `aria-${property.slice(4).toLowerCase()}`, get]);
  }
}
const { querySelectorAll: allWithin } = Element.prototype;
const { querySelectorAll: allInRoot } = DocumentFragment.prototype;
const attachedTo = (internals) => {
  const attributes = [];
  for (let i = 0; i < getters.length; i++) {
    const value = call(getters[i][1], internals, []);
    if (typeof value === "string") attributes[attributes.length] = [getters[i][0], value];
  }
  const states = [];
  if (statesOf && forEachState) {
    call(forEachState, call(statesOf, internals, []), [(state) => { states[states.length] = state; }]);
  }
  return [attributes, states];
};
export const attached = () => {
  const found = [];
  let number = 0;
  const walk = (elements) => {
    const first = number;
    number += elements.length;
    for (let i = 0; i < elements.length; i++) {
      const internals = internalsOf.get(elements[i]);
      if (internals && found.length < MOST_ATTACHED) {
        const [attributes, states] = attachedTo(internals);
        if (attributes.length || states.length) found[found.length] = [first + i, attributes, states];
      }
      const root = call(shadowRootOf, elements[i], []);
      if (root) walk(call(allInRoot, root, ["*"]));
    }
  };
  if (page.documentElement) walk(call(allWithin, page.documentElement, ["*"]));
  return found;
};
