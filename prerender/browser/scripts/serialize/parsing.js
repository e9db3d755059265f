import { inlineStyleOf, localNameOf, on } from "./elements.js";

// ---- Parsing a snapshot must give the DOM that it was made of. Six things would be parsed differently (HTML
// Standard, sections 13.1, 13.2.3.5, 13.2.5.17 and 13.3):
// - NUL, which the parser drops or replaces, and noncharacters and lone surrogates, which are not allowed in
//   documents: each becomes U+FFFD, as in the parser. Other controls stay.
// - CR, which is parsed as LF: a character reference, or LF where references are not decoded.
// - The first LF in these elements, which the parser drops: it is doubled.
const dropsFirstNewline = "pre, textarea, listing";
// - The end tag within raw text: a string in a style may contain "</style>", a comment "-->".
const rawText = "style, script, xmp, iframe, noembed, noframes";
// - "<!--" in a script: a "<script" after it hides the end tag. The document may have both, and the parser has then found
//   the end, so only a script that it would not read as it is changes. The escape has the same meaning in JSON, strings
//   and regular expressions.
const endsAtItsEnd = (script) => {
  let depth = 0; // 1: escaped, 2: double escaped
  for (const [found] of script.matchAll(/<!(?=--)|-->|<\/?script(?=[\t\n\f />])/gi)) {
    if (found === "-->") depth = 0;
    else if (found === "<!") depth ||= 1;
    else if (found[1] !== "/") depth &&= 2;
    else if (depth < 2) return false;
    else depth = 1;
  }
  return depth < 2;
};
const forbidden = /[\0\p{Cs}\p{NChar}]/gu;

// In SVG and MathML, a template is an unknown element with its content as children.
export const forEachTemplate = (tree, visit) => {
  for (const { content } of tree.querySelectorAll("template")) if (content) visit(content);
};

export const asParsed = (tree) => {
  forEachTemplate(tree, asParsed);
  // HTML has no CDATA sections, XHTML has.
  const sections = document.createTreeWalker(tree, NodeFilter.SHOW_CDATA_SECTION);
  const found = [];
  while (sections.nextNode()) found.push(/** @type {CDATASection} */ (sections.currentNode));
  for (const section of found) section.replaceWith(section.data);
  // Nor has it processing instructions: one would end at its first ">".
  const instructions = document.createTreeWalker(tree, NodeFilter.SHOW_PROCESSING_INSTRUCTION);
  /** @type {any[]} */
  const gone = [];
  while (instructions.nextNode()) gone.push(instructions.currentNode);
  for (const instruction of gone) instruction.remove();
  for (const element of tree.querySelectorAll(dropsFirstNewline)) {
    element.normalize(); // An empty text may be the first one.
    const text = element.firstChild;
    if (text?.nodeType === Node.TEXT_NODE && /^[\r\n]/.test(text.data)) text.data = "\n" + text.data;
  }
  for (const element of tree.querySelectorAll(rawText)) {
    const end = new RegExp(`</(?=${element.localName})`, "gi");
    const text = element.textContent;
    let safe = text.replace(/\r\n?/g, "\n");
    const isScript = element.localName === "script";
    if (!isScript || !endsAtItsEnd(safe)) safe = safe.replace(end, "<\\/");
    if (isScript && !endsAtItsEnd(safe)) safe = safe.replaceAll("<!--", "\\u003c!--");
    if (safe !== text) element.textContent = safe;
  }
  const comments = document.createTreeWalker(tree, NodeFilter.SHOW_COMMENT);
  while (comments.nextNode()) {
    const comment = /** @type {Comment} */ (comments.currentNode);
    const { data } = comment;
    const safe = data.replace(/\r\n?/g, "\n").replace(/^-?>|--!?>/g, (end) => `${end.slice(0, -1)}&gt;`);
    if (safe !== data) comment.data = safe;
  }
};

export const asText = (markup) => markup.replace(forbidden, "\ufffd").replaceAll("\r", "&#13;");

// - What is no metadata ends the head, and so does text: what follows would be in the body. It moves there itself, hidden as
//   it was, and what is before the head, too.
const metadata = "base, basefont, bgsound, link, meta, noframes, noscript, script, style, template, title";
const inNoscript = "basefont, bgsound, link, meta, noframes, style";
const isBlank = (node) => node.nodeType === Node.COMMENT_NODE || (node instanceof Text && !/[^\t\n\f\r ]/.test(node.data));
const isMetadata = (node) => node instanceof Element && on(node, "matches", metadata) && (localNameOf(node) !== "noscript" ||
  Array.from(node.childNodes).every((one) => isBlank(one) || (one instanceof Element && one.matches(inNoscript))));

export const separateHead = (root, isShown) => {
  const head = root.querySelector(":scope > head"), body = root.querySelector(":scope > body");
  if (!head) return;
  const nodes = Array.from(root.childNodes);
  const before = nodes.slice(0, nodes.indexOf(head)).filter((node) => !isBlank(node));
  const within = Array.from(head.childNodes).filter((node) => !isBlank(node) && !isMetadata(node));
  for (const node of [...before, ...within]) node.remove();
  head.prepend(...before.filter(isMetadata));
  const moved = [...before.filter((node) => !isMetadata(node)), ...within.filter((node) => isShown || node instanceof Element)];
  if (!isShown) {
    for (const node of within) {
      if (node instanceof Element && localNameOf(node) !== "noscript") {
        inlineStyleOf(node)?.setProperty("display", "none", "important");
      }
    }
  }
  body?.prepend(...moved);
};
