// What is visible in a document, in drawing order: texts, controls with their state, and loaded pictures with their
// size; in its frames and shadow roots, too. Evaluated in a page and in its snapshot without scripts.
(() => {
  const shown = [];
  const tidy = (text) => text.replace(/\s+/g, " ").trim();
  const isVisible = (element) =>
    element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: false });
  const hasBoxes = (node) => {
    const range = node.ownerDocument.createRange();
    range.selectNodeContents(node);
    return range.getClientRects().length > 0;
  };
  const size = (element) => {
    const { width, height } = element.getBoundingClientRect();
    return `${Math.round(width)}x${Math.round(height)}`;
  };
  let last;
  const add = (text, element) => {
    if (!text) return;
    // An HTML parser makes one text of neighbouring text nodes.
    if (last === element) shown[shown.length - 1] += text;
    else shown.push(text);
    last = element;
  };
  const controls = (element) => {
    const { localName } = element;
    if (localName === "select") return Array.from(element.selectedOptions, (option) => option.text).join(", ");
    if (localName === "textarea") return element.value;
    if (["checkbox", "radio"].includes(element.type)) return element.checked;
    return element.type === "file" ? "" : element.value;
  };
  const picture = (element) => {
    if (element.localName === "img") return element.complete && element.naturalWidth > 0;
    return element.localName === "canvas" && element.width * element.height > 0;
  };
  const visit = (element) => {
    const { localName } = element;
    if (["script", "style", "template", "noscript", "head"].includes(localName)) return;
    const style = getComputedStyle(element);
    if (style.display === "none") return;
    const visible = isVisible(element);
    if (visible) {
      for (const which of ["::before", "::after"]) {
        const { content } = getComputedStyle(element, which);
        if (content.startsWith('"')) shown.push(`${which} ${content}`);
      }
    }
    if (["input", "textarea", "select"].includes(localName)) {
      if (visible) shown.push(`[${localName} ${controls(element)}]`);
      return;
    }
    // A canvas becomes an image.
    if (["img", "canvas"].includes(localName)) {
      if (visible && picture(element)) shown.push(`[picture ${size(element)}]`);
      return;
    }
    if (localName === "iframe" && visible) {
      shown.push("[frame]");
      let inside = null;
      try { inside = element.contentDocument?.body; } catch {}
      if (inside) visit(inside);
      shown.push("[end of frame]");
      last = null;
      return;
    }
    const assigned = localName === "slot" ? element.assignedNodes() : [];
    for (const node of element.shadowRoot?.childNodes ?? (assigned.length ? assigned : element.childNodes)) {
      if (node.nodeType === Node.ELEMENT_NODE) visit(node);
      else if (node.nodeType === Node.TEXT_NODE && visible && hasBoxes(node)) add(node.data, element);
    }
  };
  if (document.body) visit(document.documentElement);
  return [document.title, ...shown.map(tidy).filter(Boolean)];
})()
