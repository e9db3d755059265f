// What a reader sees of a document: its title, and its texts in their order, each with how it looks.
// Evaluated in a page, with or without scripts of its own; goes through shadow roots and slots.
(() => {
  const texts = [];
  const add = (text, element) => {
    const { color, backgroundColor, fontWeight, fontStyle } = getComputedStyle(element);
    const last = texts.at(-1);
    // Neighbouring text nodes are one text, as they are to an HTML parser.
    if (last?.element === element) last.text += text;
    else texts.push({ element, text, look: [color, backgroundColor, fontWeight, fontStyle].join(" ") });
  };
  const isShown = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getClientRects().length > 0;
  };
  const visit = (element, opacity) => {
    const style = getComputedStyle(element);
    opacity *= style.opacity;
    if (style.display === "none" || opacity === 0) return;
    const { localName } = element;
    if (["input", "textarea", "select"].includes(localName)) {
      add(`[${element.type === "checkbox" ? element.checked : element.value}]`, element);
      return;
    }
    const assigned = localName === "slot" ? element.assignedNodes() : [];
    const inside = element.shadowRoot?.childNodes ?? (assigned.length ? assigned : element.childNodes);
    for (const node of inside) {
      if (node.nodeType === Node.ELEMENT_NODE) visit(node, opacity);
      else if (node.nodeType === Node.TEXT_NODE && style.visibility === "visible" && isShown(node)) {
        add(node.data, element);
      }
    }
  };
  visit(document.body, 1);
  const tidy = (text) => text.replace(/\s+/g, " ").trim();
  return {
    title: document.title,
    texts: texts.map(({ text, look }) => [tidy(text), look]).filter(([text]) => text),
  };
})()
