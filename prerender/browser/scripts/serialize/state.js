// ---- States that no attribute holds, such as that of an open popover. In the snapshot, an attribute names them, and
// rules that depend on them name it, too.
const MARK = "data-prerender-state";
const DEFINED = ":defined";
const isCustom = (element) => element.localName.includes("-") || element.hasAttribute("is");

const roots = [document];
let hasCustom = document.querySelector("[is]") !== null;
for (const root of roots) {
  for (const element of root.querySelectorAll("*")) {
    if (element.shadowRoot) roots.push(element.shadowRoot);
    hasCustom ||= element.localName.includes("-");
  }
}
// Reading rules takes long, so it is done only if the answer matters.
const rulesMention = (state) => roots.some((root) =>
  [...root.styleSheets, ...(root.adoptedStyleSheets ?? [])].some((sheet) => sheetText(sheet)?.includes(state)));
const hasStates = options.attached.some(([, , states]) => states.length);
const lostStates = [":popover-open", ":modal", ":indeterminate"]
  .filter((state) => roots.some((root) => root.querySelector(state)));
if (hasCustom) lostStates.push(DEFINED);
const namedStates = lostStates.filter(rulesMention);

const dependsOnState = (css) =>
  (hasStates && css.includes(":state(")) || namedStates.some((state) => css.includes(state));
const withStates = (css) => namedStates.reduce(
  (text, state) => text.replaceAll(new RegExp(`${state}(?![\\w-])`, "g"), `:is(${state}, [${MARK}~="${state}"])`),
  hasStates ? css.replace(/:state\(\s*([\w-]+)\s*\)/g, `:is(:state($1), [${MARK}~="$1"])`) : css,
);

const addMark = (element, state) => {
  const others = element.getAttribute(MARK);
  element.setAttribute(MARK, others ? `${others} ${state}` : state);
};
// ``from`` and ``to``: the elements below ``original`` and their copies.
const markStates = (original, from, to) => {
  for (const state of namedStates) {
    const marked = new Set(original.querySelectorAll(state));
    from.forEach((element, i) => {
      if (marked.has(element) && (state !== DEFINED || isCustom(element))) addMark(to[i], state);
    });
  }
};

// What finished animations of scripts leave (Web Animations, fill mode "forwards"). Those of style sheets run again.
const animated = new Map();
for (const animation of new Set(roots.flatMap((root) => root.getAnimations()))) {
  const { effect, playState } = animation;
  const isOfStyles = animation instanceof CSSAnimation || animation instanceof CSSTransition;
  if (isOfStyles || !effect?.target || effect.pseudoElement || !["finished", "paused"].includes(playState)) continue;
  const properties = animated.get(effect.target) ?? new Set();
  for (const keyframe of effect.getKeyframes()) Object.keys(keyframe).forEach((name) => properties.add(name));
  animated.set(effect.target, properties);
}
const copyAnimated = (from, to) => {
  const style = getComputedStyle(from);
  for (const name of animated.get(from)) {
    const property = name === "cssFloat" ? "float" : name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    const value = style.getPropertyValue(property);
    if (value) to.style.setProperty(property, value);
  }
};
