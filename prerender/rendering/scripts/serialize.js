// The page as HTML text, with what the page says about itself. Evaluated in an isolated world, whose
// built-ins the page cannot have replaced. Works on an inert copy: nothing of the page runs.
(() => {
  "use strict";
  const keep = "[data-prerender-keep]";
  const removed = [
    "noscript", 'meta[name="fragment"]', 'link[rel~="modulepreload"]', 'link[rel~="import"]',
    'link[rel~="preload"][as="script"]', 'link[rel~="prefetch"][as="script"]',
  ];
  const ownMetas = 'meta[name="prerender-status-code"], meta[name="prerender-header"], ' +
    'meta[name="render:status_code"], meta[name="render:header"]';
  const dataScript = /^application\/(.+\+)?json$/i;

  const inert = document.implementation.createHTMLDocument("");

  const sheetText = (sheet) => {
    try { return Array.from(sheet.cssRules, (rule) => rule.cssText).join("\n"); } catch { return null; }
  };

  // Rules put in by insertRule are in no text. The element's own text stays as it is when it says
  // the same number of rules, because a browser's own text of a rule is not always what was written.
  const styleText = (style) => {
    const rules = style.sheet && sheetText(style.sheet);
    if (!rules) return null;
    if (style.textContent.trim() === "") return rules;
    const written = new CSSStyleSheet();
    try { written.replaceSync(style.textContent); } catch { return null; }
    return written.cssRules.length === style.sheet.cssRules.length ? null : rules;
  };

  const setAttribute = (element, name, on) => {
    if (on) element.setAttribute(name, ""); else element.removeAttribute(name);
  };

  const copyState = (from, to) => {
    switch (from.localName) {
      case "style": {
        const text = styleText(from);
        if (text !== null) to.textContent = text;
        break;
      }
      case "input":
        if (from.type === "checkbox" || from.type === "radio") setAttribute(to, "checked", from.checked);
        else if (from.type !== "password" && from.type !== "file" && from.value !== from.defaultValue) {
          to.setAttribute("value", from.value);
        }
        break;
      case "textarea":
        if (from.value !== from.defaultValue) to.textContent = from.value;
        break;
      case "option":
        setAttribute(to, "selected", from.selected);
        break;
    }
  };

  const adopted = (root) => {
    const text = Array.from(root.adoptedStyleSheets ?? [], sheetText).filter(Boolean).join("\n");
    if (!text) return null;
    const style = inert.createElement("style");
    style.textContent = text;
    return style;
  };

  // Original and copy have the same shape, so the n-th element of one is the n-th of the other.
  const complete = (original, copy) => {
    const from = original.querySelectorAll("*");
    const to = copy.querySelectorAll("*");
    for (let i = 0; i < from.length; i++) {
      copyState(from[i], to[i]);
      const root = from[i].shadowRoot;
      if (root) to[i].prepend(declared(root));
    }
  };

  const declared = (root) => {
    const template = inert.createElement("template");
    template.setAttribute("shadowrootmode", root.mode);
    if (root.delegatesFocus) template.setAttribute("shadowrootdelegatesfocus", "");
    const content = inert.createElement("div");
    for (const node of root.childNodes) content.append(inert.importNode(node, true));
    complete(root, content);
    const style = adopted(root);
    clean(content);
    template.content.append(...(style ? [style] : []), ...content.childNodes);
    return template;
  };

  const clean = (copy) => {
    for (const template of copy.querySelectorAll("template")) clean(template.content);
    for (const element of copy.querySelectorAll(removed.join(","))) {
      if (!element.matches(keep)) element.remove();
    }
    for (const script of copy.querySelectorAll("script")) {
      if (!script.matches(keep) && !dataScript.test(script.type)) script.remove();
    }
  };

  const metas = (name) => Array.from(
    document.querySelectorAll(`meta[name="${name}"]`), (meta) => meta.content.trim(),
  );

  const doctype = () => {
    const type = document.doctype;
    if (!type) return "";
    const publicId = type.publicId ? ` PUBLIC "${type.publicId}"` : "";
    const system = type.systemId ? `${publicId ? "" : " SYSTEM"} "${type.systemId}"` : "";
    return `<!DOCTYPE ${type.name}${publicId}${system}>`;
  };

  const html = () => {
    const root = inert.importNode(document.documentElement, true);
    complete(document.documentElement, root);
    const style = adopted(document);
    if (style) (root.querySelector("head") ?? root).append(style);
    clean(root);
    for (const meta of root.querySelectorAll(ownMetas)) meta.remove();
    for (const meta of root.querySelectorAll("meta[charset], meta[http-equiv='content-type' i]")) meta.remove();
    const charset = inert.createElement("meta");
    charset.setAttribute("charset", "utf-8");
    root.querySelector("head")?.prepend(charset);
    return (doctype() + root.outerHTML).toWellFormed();
  };

  const body = document.body;
  return {
    html: document.documentElement ? html() : "",
    url: location.href,
    empty: !body || (body.childElementCount === 0 && body.textContent.trim() === ""),
    statusCodes: [...metas("prerender-status-code"), ...metas("render:status_code")],
    headers: [...metas("prerender-header"), ...metas("render:header")],
  };
})()
