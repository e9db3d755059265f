// ---- The fields of a form are properties of it by their names, before its own: <input name="attributes">. What the
// serializer reads of elements that may be forms, it reads and calls by the interface.
/** @returns {(node: any) => any} */
const getterOf = (type, property) => {
  const { get } = Object.getOwnPropertyDescriptor(type.prototype, property);
  return (node) => get.call(node);
};
export const attributesOf = getterOf(Element, "attributes");
export const localNameOf = getterOf(Element, "localName");
export const parentOf = getterOf(Node, "parentNode");
export const shadowRootOf = getterOf(Element, "shadowRoot");
const styleOfForm = getterOf(HTMLElement, "style");
export const inlineStyleOf = (element) => (localNameOf(element) === "form" ? styleOfForm(element) : element.style);
export const on = (element, method, ...given) => Element.prototype[method].apply(element, given);
