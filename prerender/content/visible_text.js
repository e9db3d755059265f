// The texts that a visitor can read: [text, whether it is visible] of all text between tags, in drawing order; and
// the targets of links. Evaluated in an isolated world. An element ends a text, a comment does not. Elements that one of
// the selectors matches are listed by themselves and then hidden: snapshots lack them.
((selectors) => {
  "use strict";
  const MOST_REMOVED = 1000;
  const removed = [];
  const never = new Set([document.documentElement, document.head, document.body]);
  const unwanted = new Map();
  const find = (root) => {
    for (const selector of selectors) {
      try {
        for (const element of root.querySelectorAll(selector)) {
          if (!never.has(element) && !unwanted.has(element)) unwanted.set(element, selector);
        }
      } catch { /* of another server */ }
    }
  };
  find(document);
  const unread = new Set(["script", "style", "noscript", "template", "head"]);
  const texts = [];
  let text = "";
  let shown = false;

  const end = () => {
    const plain = text.replace(/\s+/g, " ").trim();
    if (plain) texts.push([plain, shown]);
    text = "";
  };

  // Options count as visible, although they have no box until the list is opened.
  const isShown = (element) =>
    (element?.closest("select") ?? element)?.checkVisibility({ visibilityProperty: true }) ?? true;

  const childrenOf = (node) => {
    if (node.shadowRoot) {
      find(node.shadowRoot);
      return node.shadowRoot.childNodes;
    }
    if (node.localName === "slot" && node.assignedNodes) {
      const assigned = node.assignedNodes();
      if (assigned.length) return assigned;
    }
    return node.childNodes;
  };

  // A stack instead of recursion: pages can be nested to any depth.
  /** @type {any[]} */
  const stack = [document.documentElement];
  while (stack.length) {
    const node = stack.pop();
    if (typeof node === "function") {
      node();
    } else if (unwanted.has(node)) {
      end();
      const plain = (node.innerText ?? node.textContent).replace(/\s+/g, " ").trim();
      if (removed.length < MOST_REMOVED) removed.push([unwanted.get(node), plain.slice(0, 300)]);
      // So that a screen reader does not announce it, either.
      node.style?.setProperty("display", "none", "important");
    } else if (node.nodeType === Node.TEXT_NODE) {
      if (!text) shown = isShown(node.parentElement);
      text += node.data;
    } else if (node.nodeType === Node.ELEMENT_NODE && !unread.has(node.localName)) {
      end();
      stack.push(end, ...Array.from(childrenOf(node)).reverse());
    }
  }
  end();
  const targets = (selector) =>
    Array.from(document.querySelectorAll(selector), (/** @type {any} */ link) => String(link.href));
  const links = [...targets("a[href]"), ...targets('link[rel~="canonical" i]')];
  return { url: location.href, title: document.title, texts, links, removed };
})
