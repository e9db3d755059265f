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
patchEach(globalThis.console, Object.keys(globalThis.console), logged);

// The history of a new page has one entry. Chromium also counts traversals without an effect, and would ignore the
// page's navigations after 200.
const traversed = quota(2);
patchEach(prototypeOf("History"), ["back", "forward", "go"], traversed);

// Each write of a cookie occupies the network service.
const cookieWritten = quota(500, () => Promise.resolve());
patchEach(prototypeOf("CookieStore"), ["set", "delete"], cookieWritten);
patchAccessor(Document.prototype, "cookie", "set", cookieWritten);

// Each change of the title occupies the browser process.
patchAccessor(Document.prototype, "title", "set", quota(1000));

// Each of these occupies the browser process. Beyond the quota, their promises never settle.
const never = () => new Promise(() => {});
const asked = quota(1000, never);
patch(prototypeOf("Permissions"), "query", asked);
patchEach(prototypeOf("StorageManager"), ["estimate", "getDirectory"], asked);
patchEach(prototypeOf("LockManager"), ["query", "request"], asked);

// These occupy it longer, and visitors are asked about them.
const consented = quota(50, never);
patchEach(prototypeOf("Clipboard"), ["read", "readText", "write", "writeText"], consented);
patchEach(prototypeOf("Element"), ["requestFullscreen", "requestPointerLock"], consented);
patchEach(prototypeOf("MediaDevices"), ["enumerateDevices", "getUserMedia"], consented);
patch(globalThis.Notification, "requestPermission", consented);
patchEach(prototypeOf("Geolocation"), ["getCurrentPosition", "watchPosition"], quota(50));

// Each loads a script and starts a worker.
patch(prototypeOf("ServiceWorkerContainer"), "register", quota(5, never));
