import { inlineStyleOf, localNameOf, on, shadowRootOf } from "./elements.js";
import { sheetText } from "./sheet_text.js";

// ---- States that no attribute holds, such as that of an open popover. In the snapshot, an attribute names them, and
// rules that depend on them name it, too.
const MARK = "data-prerender-state";
const DEFINED = ":defined";
const isCustom = (element) => localNameOf(element).includes("-") || on(element, "hasAttribute", "is");

// document.open() gives a frame the URL of the page.
export const isAddress = (url) => /^https?:/.test(url) && url.split("#")[0] !== location.href.split("#")[0];
// The document, its shadow roots, and the documents of frames without an address, which are part of the snapshot.
/** @type {any[]} */
const roots = [document];
let hasCustom = false;
for (const root of roots) {
  hasCustom ||= root.querySelector("[is]") !== null;
  for (const element of root.querySelectorAll("*")) {
    const localName = localNameOf(element), shadowRoot = shadowRootOf(element);
    if (shadowRoot) roots.push(shadowRoot);
    hasCustom ||= localName.includes("-");
    if (localName !== "iframe") continue;
    const shown = element.contentDocument;
    if (shown && !isAddress(shown.URL)) roots.push(shown);
  }
}
export const shadowRoots = roots.filter((root) => root.host);
// Reading rules takes long, so it is done only if the answer matters.
const rulesMention = (state) => roots.some((root) =>
  [...root.styleSheets, ...(root.adoptedStyleSheets ?? [])].some((sheet) => sheetText(sheet)?.includes(state)));
export const hasStates = options.attached.some(([, , states]) => states.length);
const lostStates = [":popover-open", ":modal", ":indeterminate"]
  .filter((state) => roots.some((root) => root.querySelector(state)));
if (hasCustom) lostStates.push(DEFINED);
export const namedStates = lostStates.filter(rulesMention);

export const dependsOnState = (css) =>
  (hasStates && css.includes(":state(")) || namedStates.some((state) => css.includes(state));
export const withStates = (css) => namedStates.reduce(
  (text, state) => text.replaceAll(new RegExp(`${state}(?![\\w-])`, "g"), `:is(${state}, [${MARK}~="${state}"])`),
  hasStates ? css.replace(/:state\(\s*([\w-]+)\s*\)/g, `:is(:state($1), [${MARK}~="$1"])`) : css,
);

export const addMark = (element, state) => {
  const others = on(element, "getAttribute", MARK);
  on(element, "setAttribute", MARK, others ? `${others} ${state}` : state);
};
// ``from`` and ``to``: the elements below ``original`` and their copies.
export const markStates = (original, from, to) => {
  for (const state of namedStates) {
    const marked = new Set(original.querySelectorAll(state));
    from.forEach((element, i) => {
      if (marked.has(element) && (state !== DEFINED || isCustom(element))) addMark(to[i], state);
    });
  }
};

// What animations of scripts leave (Web Animations, fill mode "forwards"). Those of style sheets run again. One that
// follows scrolling shows everything to readers who scroll.
export const animated = new Map();
const cssName = (name) => (name === "cssFloat" ? "float" : name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`));
for (const animation of new Set(roots.flatMap((root) => root.getAnimations()))) {
  const { effect, playState, timeline } = animation;
  // By their properties: those of frames have other classes.
  if ("animationName" in animation || "transitionProperty" in animation) continue;
  if (!effect?.target || effect.pseudoElement) continue;
  const frames = effect.getKeyframes();
  const style = animated.get(effect.target) ?? new Map();
  if (timeline && "source" in timeline) {
    const opacities = frames.map(({ opacity }) => parseFloat(opacity)).filter((opacity) => opacity >= 0);
    if (opacities.length) style.set("opacity", String(Math.max(...opacities)));
  } else if (["finished", "paused"].includes(playState)) {
    const names = new Set(frames.flatMap(Object.keys).map(cssName));
    const computed = getComputedStyle(effect.target);
    for (const name of names) style.set(name, computed.getPropertyValue(name));
  }
  animated.set(effect.target, style);
}
export const copyAnimated = (from, to) => {
  for (const [name, value] of animated.get(from)) if (value) inlineStyleOf(to).setProperty(name, value);
};
