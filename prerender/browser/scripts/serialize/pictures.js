// ---- Pictures that only the page has, because nobody else can open its blob: URLs and run its scripts.
const MOST_PIXELS = 4_000_000;
const MOST_OCTETS = 1_000_000;
// Characters of all drawings of a page: enough for charts, and not for photos or games.
let drawingLength = 500_000;
export let hasDrawings = false;

export const drawn = (image, width, height) => {
  if (!width || !height || width * height > MOST_PIXELS) return null;
  try {
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL();
  } catch { return null; /* of another origin */ }
};

export const drawingOf = (canvas) => {
  if (!options.drawings || !canvas.checkVisibility()) return null;
  const url = drawn(canvas, canvas.width, canvas.height);
  if (!url || url.length > drawingLength) return null;
  drawingLength -= url.length;
  hasDrawings = true;
  return url;
};

const read = (url) => {
  try {
    const request = new XMLHttpRequest();
    request.open("GET", url, false);
    request.overrideMimeType("text/plain; charset=x-user-defined"); // octets as they are
    request.setRequestHeader("Range", `bytes=0-${MOST_OCTETS}`);
    request.send();
    if (request.responseText.length > MOST_OCTETS) return null;
    const octets = request.responseText.replace(/[^\0-\xff]/g, (one) => String.fromCharCode(one.charCodeAt(0) & 0xff));
    return `data:${request.getResponseHeader("Content-Type") ?? ""};base64,${btoa(octets)}`;
  } catch { return null; /* revoked, or refused by the page's policy */ }
};
const known = new Map();
export const dataOf = (url) => {
  if (!known.has(url)) known.set(url, read(url));
  return known.get(url);
};
export const withData = (html) => html.replace(/\bblob:https?:[\w:/.[\]-]+/g, (url) => dataOf(url) ?? url);
