// ---- The document itself.
const count = new MutationObserver((records) => { mutations += records.length; });
count.observe(document, { childList: true, characterData: true, subtree: true });

const { getAnimations } = Document.prototype;
const finishAnimations = () => {
  let finishing = false;
  for (const animation of getAnimations?.call(document) ?? []) {
    const end = animation.effect?.getComputedTiming().endTime;
    if (animation.playState !== "running" || !(end < Infinity)) continue;
    try { animation.finish(); } catch { continue; /* it cannot end, so it is not waited for */ }
    finishing = true;
  }
  if (finishing) untilFrame(); // their events come with it
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
