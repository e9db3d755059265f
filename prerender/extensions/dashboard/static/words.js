// Plain words for the terms of the API.

/** Classes of crawlers, in the order of the settings. */
export const CLASSES = {
  search: "Search engine", ai_search: "AI search", ai_training: "AI training", ai_user: "AI assistant",
  social: "Link preview", seo_tool: "SEO tool", archive: "Archive", feed: "Feed reader", monitoring: "Monitoring",
  signed: "Signed agent",
};

/** The presets; each contains the one before. Those in WANTED serve whom most sites want to be read by. */
export const PRESETS = ["search", "crawlers", "ai", "all"];
export const WANTED = PRESETS.slice(0, 3);

// The smallest preset that serves a class.
const PRESET_OF = {
  search: "search", social: "search", ai_search: "crawlers", ai_user: "crawlers", ai_training: "ai", seo_tool: "all",
  archive: "all", feed: "all",
};

const FORWARDED = /^a crawler, forwarded by \[triggers\] (\w+)/;

/** The reason of a decision; for a crawler that is forwarded, with the setting to change. */
export function reason(text) {
  const name = text.match(FORWARDED)?.[1];
  if (!name) return text;
  const preset = PRESET_OF[name] ? `, or PRERENDER_TRIGGERS_PRESET=${PRESET_OF[name]}` : "";
  return `a known crawler (${CLASSES[name]}), but [triggers] forwards this class. To serve it snapshots, set `
    + `PRERENDER_TRIGGERS_${name.toUpperCase()}=render${preset}`;
}

const ERRORS = {
  RenderTimeout: "the page was not rendered within [render] timeout",
  PageOverLimit: "the page used more resources than one render may",
  EmptyPage: "the page shows nothing",
  IncompletePage: "the site’s own data is missing from the page",
  DocumentRefused: "the site responds to visitors, but not to the renderer",
  SnapshotTooLarge: "the page is larger than [render] max_bytes",
  PoolBusy: "all pages of the browser were busy",
  ShuttingDown: "the proxy was shutting down",
  BrowserGone: "the browser died or did not respond",
  OriginError: "the site’s server could not be reached",
  OriginTimeout: "the site’s server did not respond in time",
  LoopDetected: "the origin leads back to this proxy",
  CrawlerRefused: "[triggers] refuses this class of crawlers",
};

/** What an error of a request means. */
export const failure = (name) => ERRORS[name] || `the request failed (${name})`;

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
