// ---- Calls that keep the browser's shared processes busy, and with them all other pages. Each document may make so
// many; the rest have no effect.
const quota = (most, beyond = () => {}) => {
  let calls = 0;
  return (original) => function (...given) {
    return calls++ < most ? original.apply(this, given) : beyond();
  };
};

// Nobody reads what is logged.
const logged = quota(1000);
for (const method of Object.keys(globalThis.console)) patch(globalThis.console, method, logged);

// A page that comes directly has nowhere to go. Chromium counts traversals that lead nowhere too, and would ignore the
// page's navigations after 200.
const traversed = quota(2);
for (const method of ["back", "forward", "go"]) patch(prototypeOf("History"), method, traversed);

// Each cookie that is written occupies the network service.
const cookieWritten = quota(500, () => Promise.resolve());
for (const method of ["set", "delete"]) patch(prototypeOf("CookieStore"), method, cookieWritten);
const cookie = Object.getOwnPropertyDescriptor(Document.prototype, "cookie");
Object.defineProperty(Document.prototype, "cookie", { ...cookie, set: cookieWritten(cookie.set) });

// Each of these occupies the browser process. Beyond the quota they get no answer.
const asked = quota(1000, () => new Promise(() => {}));
patch(prototypeOf("Permissions"), "query", asked);
for (const method of ["estimate", "getDirectory"]) patch(prototypeOf("StorageManager"), method, asked);
for (const method of ["query", "request"]) patch(prototypeOf("LockManager"), method, asked);
