import { call, patchAccessor, prototypeOf } from "./core.js";

// ---- The user agent carries the page's number, which differs at each render. Scripts get the one of an ordinary Chrome,
// in functions that look like the browser's own.
for (const property of ["userAgent", "appVersion"]) {
  patchAccessor(prototypeOf("Navigator"), property, "get", (original) => {
    const reduced = call(original, globalThis.navigator, []).replace(/(Chrome\/\d+\.0\.0\.)\d+/, "$10");
    // Without a prototype, to which the page could add traps.
    return new Proxy(original, Object.setPrototypeOf({
      apply(target, owner, given) {
        call(target, owner, given);
        return reduced;
      },
    }, null));
  });
}
