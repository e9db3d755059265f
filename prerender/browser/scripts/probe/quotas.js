import { call, listen, patch, patchAccessor, patchEach, Promise, prototypeOf } from "./core.js";
// It counts pending work within these quotas: calls beyond them are not pending.
import "./async_work.js";

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
for (const method of Object.keys(globalThis.console)) {
  // These return what the page uses.
  if (method !== "createTask" && method !== "context") patch(globalThis.console, method, logged);
}

// The history of a new page has one entry. Chromium also counts traversals without an effect, and would ignore the
// page's navigations after 200.
const traversed = quota(2);
patchEach(prototypeOf("History"), ["back", "forward", "go"], traversed);

// A change of the URL or of the history's state occupies the browser process by its length.
const MOST_URLS_LENGTH = 500_000;
const MOST_STATES_LENGTH = 2_000_000;
const MOST_VALUES = 1000;
const getterOf = (type, property) => Object.getOwnPropertyDescriptor(prototypeOf(type), property).get;
const destinationOf = getterOf("NavigateEvent", "destination");
const urlOf = getterOf("NavigationDestination", "url");
const isWithin = getterOf("NavigationDestination", "sameDocument");
const { preventDefault } = Event.prototype;
let urlsLength = 0;
listen.call(globalThis.navigation, "navigate", (event) => {
  const destination = call(destinationOf, event, []);
  if (!call(isWithin, destination, [])) return;
  urlsLength += call(urlOf, destination, []).length;
  if (urlsLength > MOST_URLS_LENGTH) call(preventDefault, event, []);
});
const { values: valuesOf } = Object;
const { ArrayBuffer: Octets } = globalThis;
const { isView } = Octets;
// Numbers that the page names "length" are not lengths.
const lengthOf = (value) => {
  const left = [value];
  let length = 1;
  for (let i = 0; i < left.length && i < MOST_VALUES; i++) {
    const one = left[i];
    if (typeof one === "string") length += one.length;
    if (typeof one !== "object" || one === null) continue;
    if (isView(one) || one instanceof Octets) { length += one.byteLength; continue; }
    const inner = valuesOf(one);
    length += inner.length;
    for (let j = 0; j < inner.length && left.length < MOST_VALUES; j++) left[left.length] = inner[j];
  }
  return length;
};
let statesLength = 0;
patchEach(prototypeOf("History"), ["pushState", "replaceState"], (original) => function (...given) {
  if (typeof given[0] === "object" || typeof given[0] === "string") statesLength += lengthOf(given[0]);
  return statesLength > MOST_STATES_LENGTH ? undefined : original.apply(this, given);
});

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
