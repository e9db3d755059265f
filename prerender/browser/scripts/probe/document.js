// ---- The document itself. It is parsed when the scripts that it names have run, but those of their own time.
let parsed = document.readyState === "complete";
listen.call(globalThis, "DOMContentLoaded", () => { parsed = true; }, true);
const count = new MutationObserver((records) => { mutations += records.length; });
count.observe(document, { childList: true, characterData: true, subtree: true });

// Animations are brought to their ends. One that has run out by itself is told so with the next frame only,
// and until then the browser does not list it: those that scripts make are remembered.
const { getAnimations } = Document.prototype;
const animations = newSet();
patch(prototypeOf("Element"), "animate", (original) => function (...given) {
  const animation = original.apply(this, given);
  const forget = () => { animations.delete(animation); };
  animations.add(animation);
  then.call(animation.finished, forget, forget);
  return animation;
});
const finishAnimations = () => {
  let finishing = false;
  const finish = (animation) => {
    const end = animation.effect?.getComputedTiming().endTime;
    const ends = animation.playState === "running" || animation.playState === "finished";
    if (!ends || !(end < Infinity)) return;
    animations.delete(animation);
    try { animation.finish(); } catch { return; /* it cannot end, so it is not waited for */ }
    finishing = true;
  };
  for (const animation of getAnimations?.call(document) ?? []) {
    if (animation.playState === "running") animations.add(animation);
  }
  animations.forEach(finish);
  if (finishing) untilFrame(); // their events come with it
};

// When a refresh of the document takes the visitor elsewhere (HTML, section 4.2.5.3): its time begins when the
// document has been loaded. A reload brings nothing new.
const REFRESH = /^\s*(\d+)[.\d]*\s*[;,]?\s*(?:url\s*=\s*)?["']?([^"']*)/i;
const refreshDue = () => {
  const [navigation] = performance.getEntriesByType("navigation");
  if (globalThis !== top || !navigation?.loadEventEnd) return null;
  for (const meta of document.querySelectorAll('meta[http-equiv="refresh" i]')) {
    const [, seconds, url] = REFRESH.exec(meta.content) ?? [];
    if (!url || !URL.canParse(url, document.baseURI)) continue;
    const [path] = new URL(url, document.baseURI).href.split("#");
    if (path !== location.href.split("#")[0]) return navigation.loadEventEnd + seconds * 1000;
  }
  return null;
};

// Frames of the same origin are part of the page; others cannot be asked.
let foreign = 0;
const forEachFrame = (visit) => {
  foreign = 0;
  for (let i = 0; i < globalThis.length; i++) {
    try {
      const probe = globalThis[i][name];
      if (probe) visit(probe);
    } catch {
      foreign++;
    }
  }
};

// A window that has been to one page only may close itself. This one is not a visitor's.
if (globalThis === top) patch(globalThis, "close", () => () => {});
