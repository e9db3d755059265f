// Plain words for the terms of the API.

/** Classes of crawlers, in the order of the settings, and what one of them is called.
 * @type {Record<string, string>} */
export const CLASSES = JSON.parse(/** @type {HTMLElement} */ (document.getElementById("classes")).textContent);

/** The presets; each contains the one before. Those in WANTED serve whom most sites want to be read by. */
export const PRESETS = ["search", "crawlers", "ai", "all"];
export const WANTED = PRESETS.slice(0, 3);

/** The name of the crawler of a request: of a signed agent, the host of its keys. */
export const requesterName = (item) => (item.crawler === "signed" ? item.agent : crawlerName(item.user_agent));

/** The name of a crawler: the first product in its User-Agent that is not a browser's. */
function crawlerName(userAgent) {
  const known = /^(Mozilla|AppleWebKit|Chrome|Safari|Gecko|Mobile|Version)\//;
  const inside = userAgent.match(/compatible; ([^;/)]+)/);
  if (inside) return inside[1];
  const words = userAgent.split(/\s+/).filter((word) => /^[\w.-]+\/[\w.]+/.test(word) && !known.test(word));
  return words[0]?.split("/")[0] || userAgent.slice(0, 30) || "unnamed";
}

/** A URL without scheme and host. */
export const path = (url) => url.replace(/^https?:\/\/[^/]+/, "");

/** The URL of the view of a requested page: by its id, or by its target if it was forwarded. */
export const pageOf = (item) => (item.id
  ? `#/page/${item.id}?url=${encodeURIComponent(item.url)}`
  : `#/page/?url=${encodeURIComponent(item.target)}`);
