// ---- A snapshot is parsed to the DOM that it was made of. Four things of a DOM would be read otherwise than
// they stand there (HTML Standard, sections 13.1, 13.2.3.5 and 13.3):
// - NUL, which the parser drops or replaces, and noncharacters and lone surrogates, which no document may
//   contain: each becomes U+FFFD, as the parser itself does it. Other controls are read as they are, and stay.
// - CR, which is read as LF: a character reference, or LF where none would be decoded.
// - The first LF of these elements, which is not read: it is there twice.
const dropsFirstNewline = "pre, textarea, listing";
// - The end of raw text within it: a string of a style may contain "</style>", a comment "-->".
const rawText = "style, script, xmp, iframe, noembed, noframes";
const forbidden = /[\0\p{Cs}\p{NChar}]/gu;

const asParsed = (tree) => {
  for (const template of tree.querySelectorAll("template")) asParsed(template.content);
  for (const element of tree.querySelectorAll(dropsFirstNewline)) {
    const text = element.firstChild;
    if (text?.nodeType === Node.TEXT_NODE && /^[\r\n]/.test(text.data)) text.data = "\n" + text.data;
  }
  for (const element of tree.querySelectorAll(rawText)) {
    const end = new RegExp(`</(?=${element.localName})`, "gi");
    const text = element.textContent;
    const safe = text.replace(/\r\n?/g, "\n").replace(end, "<\\/");
    if (safe !== text) element.textContent = safe;
  }
  const comments = document.createTreeWalker(tree, NodeFilter.SHOW_COMMENT);
  while (comments.nextNode()) {
    const { data } = comments.currentNode;
    const safe = data.replace(/\r\n?/g, "\n").replace(/^-?>|--!?>/g, (end) => `${end.slice(0, -1)}&gt;`);
    if (safe !== data) comments.currentNode.data = safe;
  }
};

const asText = (markup) => markup.replace(forbidden, "\ufffd").replaceAll("\r", "&#13;");
