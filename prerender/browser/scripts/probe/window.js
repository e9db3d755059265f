import { patch, patchEach, Promise, prototypeOf } from "./core.js";

// ---- The window stays as it is. Browsers let scripts change only windows that scripts have opened, and Chromium on a
// desktop cannot lock its orientation. Headless Chromium can: it would turn the screen of all pages.
patchEach(globalThis, ["moveBy", "moveTo", "resizeBy", "resizeTo"], () => () => {});
// A window with one history entry may close itself. Here it must not.
if (window === top) patch(globalThis, "close", () => () => {});
const { DOMException } = globalThis;
const reject = Promise.reject.bind(Promise);
patch(prototypeOf("ScreenOrientation"), "lock", () => () =>
  reject(new DOMException("screen.orientation.lock() is not available on this device.", "NotSupportedError")));
