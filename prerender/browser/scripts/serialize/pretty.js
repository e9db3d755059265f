// ---- Converts ugly URLs of the site to pretty ones: snapshots contain only these. Same rules as ajax_crawling.py
// and references.py; both are tested with tests/urls/scheme_vectors.json.
export const TOKEN = "_escaped_fragment_=";
const ugly = /^([^?#]*)(?:\?|(\?[^#]*)&)_escaped_fragment_=([^&#]*)(?:(#)(.*))?$/s;
const hasToken = /(?:^\?|&)_escaped_fragment_(?=[=&]|$)/;

const octetsOf = (text) => String.fromCharCode(...new TextEncoder().encode(text));
// Octet by octet, so that no part of a value depends on its neighbours.
const stateOf = (value) => Array.from(value, octetsOf).join("")
  .replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(parseInt(hex, 16)))
  .replace(/[^!#-;=?-_a-~]/g, (octet) =>
    `%${octet.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);

export const resolved = (reference, base) => {
  try { return new URL(reference, base); } catch { return null; }
};

// A URL of the page's own origin without the origin, which may not be the public one, if it is the same from ``base``.
export const ownReference = (href, base) => {
  const short = href.startsWith(`${location.origin}/`) ? href.slice(location.origin.length) : href;
  return resolved(short, base)?.href === href ? short : href;
};

const pathOf = (base) => {
  const { origin, pathname } = new URL(base);
  return pathname.startsWith("//") ? origin + pathname : pathname;
};

export const prettyReference = (reference, base, sites) => {
  const text = reference.replace(/^[\0- ]+|[\0- ]+$|[\t\n\r]/g, "");
  const parts = ugly.exec(text);
  if (!parts || hasToken.test(parts[2] ?? "")) return reference;
  const url = resolved(text, base);
  if (!/^https?:$/.test(url?.protocol)) return reference;
  if (!sites.includes(url.hostname.replace(/\.$/, "")) && !sites.includes(url.host)) return reference;
  const [, path, query = "", value, hash = "", fragment = ""] = parts;
  const page = path + query || pathOf(base);
  if (fragment.startsWith("!")) return `${page}#${fragment}`;
  const state = stateOf(value);
  return page + (state ? `#!${state}` : hash + fragment);
};
