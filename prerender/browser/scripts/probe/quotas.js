// ---- Quotas for calls that keep the browser's shared processes busy, and so slow down all other pages. Each document
// has its own; further calls have no effect.
const quota = (most, beyond = () => {}) => {
  let calls = 0;
  return (original) => function (...given) {
    return calls++ < most ? original.apply(this, given) : beyond();
  };
};

// The console is not read.
const logged = quota(1000);
for (const method of Object.keys(globalThis.console)) patch(globalThis.console, method, logged);

// The history of a new page has one entry. Chromium also counts traversals without an effect, and would ignore the
// page's navigations after 200.
const traversed = quota(2);
for (const method of ["back", "forward", "go"]) patch(prototypeOf("History"), method, traversed);

// Each write of a cookie occupies the network service.
const cookieWritten = quota(500, () => Promise.resolve());
for (const method of ["set", "delete"]) patch(prototypeOf("CookieStore"), method, cookieWritten);
patchAccessor(Document.prototype, "cookie", "set", cookieWritten);

// Each change of the title occupies the browser process.
patchAccessor(Document.prototype, "title", "set", quota(1000));

// Each of these occupies the browser process. Beyond the quota, their promises never settle.
const never = () => new Promise(() => {});
const asked = quota(1000, never);
patch(prototypeOf("Permissions"), "query", asked);
for (const method of ["estimate", "getDirectory"]) patch(prototypeOf("StorageManager"), method, asked);
for (const method of ["query", "request"]) patch(prototypeOf("LockManager"), method, asked);

// These occupy it longer, and visitors are asked about them.
const consented = quota(50, never);
for (const [owner, ...methods] of [
  [prototypeOf("Clipboard"), "read", "readText", "write", "writeText"],
  [prototypeOf("Element"), "requestFullscreen", "requestPointerLock"],
  [prototypeOf("MediaDevices"), "enumerateDevices", "getUserMedia"],
  [globalThis.Notification, "requestPermission"],
]) {
  for (const method of methods) patch(owner, method, consented);
}
const located = quota(50);
for (const method of ["getCurrentPosition", "watchPosition"]) patch(prototypeOf("Geolocation"), method, located);

// Each loads a script and starts a worker.
patch(prototypeOf("ServiceWorkerContainer"), "register", quota(5, never));
