import {
  begin, call, FRAME_MS, Math, mutations, newSet, newWeakSet, now, patch, prototypeOf, querySelector, then,
} from "./core.js";
import { onAccess, wantFrame } from "./layout.js";

// ---- Transitions and animations. They begin when a style is computed, follow the time of the last frame, and end
// with a frame. If nothing listens to them, nothing of the page depends on them.
const { getAnimations } = Document.prototype;
const animations = newSet(); // created by scripts
const finished = newWeakSet(); // with a frame for their events; those that fill forwards stay listed
const EVENTS = /^(?:webkit)?(?:transition|animation)(?:cancel|end|iteration|run|start)$/i;
let animated = false; // whether the page can notice animations
const heedAnimations = () => { animated = true; };
patch(EventTarget.prototype, "addEventListener", (original) => function (...given) {
  if (EVENTS.test(given[0])) animated = true;
  return original.apply(this, given);
});
// Listed, because enumerating the properties of these objects takes half a millisecond for each document.
const handlers = [
  "onanimationcancel", "onanimationend", "onanimationiteration", "onanimationstart",
  "ontransitioncancel", "ontransitionend", "ontransitionrun", "ontransitionstart",
  "onwebkitanimationend", "onwebkitanimationiteration", "onwebkitanimationstart", "onwebkittransitionend",
];
for (const owner of [globalThis, prototypeOf("Document"), prototypeOf("HTMLElement"), prototypeOf("SVGElement")]) {
  for (let i = 0; i < handlers.length; i++) onAccess(owner, handlers[i], "set", heedAnimations);
}
// Attributes of elements do not set these properties.
const WITH_HANDLER = `[${handlers.join("], [")}]`;
let sought = -1; // at this number of mutations
export const seekHandlers = () => {
  if (animated || mutations === sought) return;
  sought = mutations;
  if (call(querySelector, document, [WITH_HANDLER])) animated = true;
};
for (const [owner, method] of [
  [prototypeOf("Element"), "getAnimations"], [prototypeOf("Document"), "getAnimations"],
]) {
  patch(owner, method, (original) => function (...given) {
    animated = true;
    return original.apply(this, given);
  });
}
patch(prototypeOf("Element"), "animate", (original) => function (...given) {
  const animation = original.apply(this, given);
  animations.add(animation);
  animated = true;
  return animation;
});

// A view transition needs drawn frames until its animations run. It ends with a frame after them.
let transitions = 0; // whose animations run
patch(prototypeOf("Document"), "startViewTransition", (original) => function (...given) {
  const transition = original.apply(this, given);
  const end = begin("drawn");
  then.call(transition.ready, () => {
    end();
    heedAnimations();
    transitions++;
    const finish = () => { transitions--; };
    then.call(transition.finished, finish, finish);
  }, end);
  return transition;
});

// The browser computes styles with each frame: a transition needs a style from before the change.
let computedAt = -Infinity;
export const computeStyle = () => {
  if (!animated) return;
  computedAt = now();
  call(getAnimations, document, []);
};
export const computeStyleInTime = () => { if (now() - computedAt >= FRAME_MS) computeStyle(); };

// Milliseconds until each running animation ends; Infinity if it does not, or stands still. Finished ones are not listed, although
// their events come with the next frame.
export const animationEnds = () => {
  const ends = [];
  seekHandlers();
  if (!animated) return ends;
  for (const animation of call(getAnimations, document, [])) animations.add(animation);
  animations.forEach((animation) => {
    const { playState, playbackRate, currentTime, effect } = animation;
    const end = effect?.getComputedTiming().endTime;
    if (playState !== "finished") finished.delete(animation);
    else if (!finished.has(animation)) { finished.add(animation); wantFrame(); }
    if (playState !== "running" || !(end >= 0)) { animations.delete(animation); return; }
    const rest = playbackRate > 0 ? end - (currentTime ?? 0) : currentTime ?? 0;
    ends[ends.length] = playbackRate === 0 ? Infinity : Math.max(0, rest / Math.abs(playbackRate));
  });
  if (transitions && ends.length === 0) wantFrame();
  return ends;
};
