import { computeStyle } from "./animations.js";
import {
  begin, call, countActivity, countFetches, getEntriesByType, listen, newMap, newSet, newWeakMap, now, page, patch,
  performance, Promise, prototypeOf, querySelectorAll, setTimeout, then, timers, URL,
} from "./core.js";
import { forEachFrame } from "./document.js";

// ---- Promises that are resolved outside the page's thread.
const watchWith = (start, owner, ...methods) => {
  for (const method of methods) {
    patch(owner, method, (original) => function (...given) {
      const end = start();
      let promise;
      try { promise = original.apply(this, given); } catch (error) { end(); throw error; }
      if (promise instanceof Promise) then.call(promise, end, end); else end();
      return promise;
    });
  }
};
const watchPromise = (owner, ...methods) => watchWith(begin, owner, ...methods);

// The browser and the gateway wait for requests. A new one shows here before it arrives there, which can take seconds
// if another page floods the network. For a visitor, styles are computed while a request is pending.
export const requested = () => {
  let ended = false;
  countActivity();
  countFetches(1);
  return () => {
    computeStyle();
    if (!ended) countFetches(-1);
    ended = true;
  };
};
// Chromium sends six at once to a host, but has all of them in a queue that other pages share.
const MOST_FETCHES = 100;
const waiting = newMap(); // number of a fetch -> lets it begin
let begun = 0;
let ended = 0;
const turn = () => new Promise((resolve) => { waiting.set(begun++, resolve); });
const nextTurn = () => {
  const number = ended++ + MOST_FETCHES;
  waiting.get(number)?.();
  waiting.delete(number);
};
// Pages send metrics with keepalive and do not look at what comes back: the content does not depend on that.
const used = newSet(); // URLs
const sent = []; // { url, isUsed }
// Whatever waits for a promise, such as await, then() or Promise.all(), reads its constructor. A handler of errors alone
// gets no content.
const watchUse = (promise, one) => {
  Object.defineProperty(promise, "constructor", {
    configurable: true, get() { one.isUsed = true; return Promise; },
  });
  patch(promise, "catch", (original) => function (...given) {
    const { isUsed } = one;
    const rest = original.apply(this, given);
    one.isUsed = isUsed;
    watchUse(rest, one);
    return rest;
  });
};
const { method: methodOf, keepalive: keepaliveOf, url: targetOf } = Object.getOwnPropertyDescriptors(Request.prototype);
const RequestType = Request;
const { href: hrefOf, hash: hashOf } = Object.getOwnPropertyDescriptors(URL.prototype);
const { toUpperCase: upper } = String.prototype;
const resolved = (target) => {
  const url = new URL(target instanceof RequestType ? call(targetOf.get, target, []) : target, page.baseURI);
  call(hashOf.set, url, [""]);
  return call(hrefOf.get, url, []);
};
const noteRequest = (promise, target, options) => {
  const of = (property) => (target instanceof RequestType ? call(property.get, target, []) : undefined);
  const one = { url: resolved(target), isUsed: false };
  const isGet = call(upper, options?.method ?? of(methodOf) ?? "GET", []) === "GET";
  if (isGet || !(options?.keepalive ?? of(keepaliveOf))) return used.add(one.url);
  sent[sent.length] = one;
  return watchUse(promise, one);
};
const { get: linkTarget } = Object.getOwnPropertyDescriptor(HTMLLinkElement.prototype, "href");
// The URLs of this document and its frames: those whose responses are used, and those of sent or preloaded requests.
export const usage = () => {
  const optional = [];
  const note = (url) => { optional[optional.length] = url; };
  for (let i = 0; i < sent.length; i++) {
    note(sent[i].url);
    if (sent[i].isUsed) used.add(sent[i].url);
  }
  // Scripts and modules are left out: nothing shows whether an import uses them.
  const preloads = call(querySelectorAll, document, ['link[rel~="preload" i][as="fetch" i]']);
  for (let i = 0; i < preloads.length; i++) {
    try { note(resolved(call(linkTarget, preloads[i], []))); } catch { /* not a URL */ }
  }
  forEachFrame((probe) => {
    const within = probe.usage();
    within.used.forEach((url) => { used.add(url); });
    for (let i = 0; i < within.optional.length; i++) note(within.optional[i]);
  });
  return { used, optional };
};
export const nameOf = Object.getOwnPropertyDescriptor(PerformanceEntry.prototype, "name").get;
// The URLs of requests whose responses the page does not use, or not yet, separated by zero characters; of sent ones as
// often as they were sent. ofWorkers: what service workers have requested: for the page only if it has, too.
export const unused = (ofWorkers) => {
  const { optional } = usage();
  if (ofWorkers.length) {
    const received = newSet();
    const entries = call(getEntriesByType, performance, ["resource"]);
    for (let i = 0; i < entries.length; i++) received.add(call(nameOf, entries[i], []));
    for (let i = 0; i < ofWorkers.length; i++) if (!received.has(ofWorkers[i])) optional[optional.length] = ofWorkers[i];
  }
  let urls = "";
  for (let i = 0; i < optional.length; i++) if (!used.has(optional[i])) urls += "\0" + optional[i];
  return urls;
};
patch(globalThis, "fetch", (original) => function (...given) {
  const start = () => original.apply(this, given);
  const end = requested();
  const done = () => { nextTurn(); end(); };
  const promise = begun < ended + MOST_FETCHES ? (begun++, start()) : then.call(turn(), start);
  then.call(promise, done, done);
  try { noteRequest(promise, given[0], given[1]); } catch { /* the request is malformed, too */ }
  return promise;
});
// The gateway takes their preflights for those of data.
const noteBeacon = (original) => function (...given) {
  const result = original.apply(this, given);
  try { sent[sent.length] = { url: resolved(given[0]), isUsed: false }; } catch { /* not a URL */ }
  return result;
};
patch(prototypeOf("Navigator"), "sendBeacon", noteBeacon);
patch(globalThis, "fetchLater", noteBeacon);
export const openedUrls = newWeakMap(); // XMLHttpRequest -> its URL before redirects
patch(globalThis.XMLHttpRequest.prototype, "open", (original) => function (...given) {
  const result = original.apply(this, given);
  const url = resolved(given[1]);
  openedUrls.set(this, url);
  used.add(url);
  return result;
});
const { HEADERS_RECEIVED, prototype: xhr } = XMLHttpRequest;
export const { getResponseHeader } = xhr;
const readyState = Object.getOwnPropertyDescriptor(xhr, "readyState").get;
patch(xhr, "send", (original) => function (...given) {
  const answered = requested();
  let received = () => {};
  const end = () => { answered(); received(); };
  listen.call(this, "readystatechange", () => {
    if (call(readyState, this, []) !== HEADERS_RECEIVED) return computeStyle();
    answered();
    const isStream = call(getResponseHeader, this, ["Content-Type"])?.startsWith("text/event-stream");
    if (!isStream) received = begin();
  });
  listen.call(this, "loadend", end);
  try { return original.apply(this, given); } catch (error) { end(); throw error; }
});

watchPromise(prototypeOf("Response"), "arrayBuffer", "blob", "bytes", "formData", "json", "text");
watchPromise(prototypeOf("Blob"), "arrayBuffer", "bytes", "text");
watchPromise(prototypeOf("ReadableStreamDefaultReader"), "read");
const { getPrototypeOf } = Object;
// The iterators of an interface share a prototype, which is only reachable through an iterator.
const watchIterators = (owner, ordinary, ...methods) => {
  let iterators;
  for (const method of methods) {
    patch(owner, method, (original) => function (...given) {
      const iterator = original.apply(this, given);
      if (!iterators) watchPromise(iterators = getPrototypeOf(iterator), "next");
      return iterator;
    });
  }
  if (owner?.[ordinary]) {
    Object.defineProperty(owner, Symbol.asyncIterator, {
      configurable: true, writable: true, value: owner[ordinary],
    });
  }
};
watchIterators(prototypeOf("ReadableStream"), "values", "values");
watchIterators(prototypeOf("FileSystemDirectoryHandle"), "entries", "entries", "keys", "values");
watchPromise(prototypeOf("CacheStorage"), "delete", "has", "keys", "match", "open");
watchPromise(prototypeOf("Cache"), "add", "addAll", "delete", "keys", "match", "matchAll", "put");
watchPromise(prototypeOf("ServiceWorkerContainer"), "register", "getRegistration", "getRegistrations");
const workers = prototypeOf("ServiceWorkerContainer"); // secure sites only
const ready = workers && Object.getOwnPropertyDescriptor(workers, "ready");
if (ready) {
  // Without a registration it never resolves, so it is not waited for before.
  let asked = false;
  let registered = false;
  const active = Object.getOwnPropertyDescriptor(ServiceWorkerRegistration.prototype, "active").get;
  const state = Object.getOwnPropertyDescriptor(ServiceWorker.prototype, "state").get;
  // It resolves when the worker is being activated, which the page may wait for, too.
  const untilReady = (container) => {
    const end = begin();
    then.call(ready.get.call(container), (registration) => {
      const worker = call(active, registration, []);
      if (!worker) return end();
      const look = () => { if (call(state, worker, []) !== "activating") end(); };
      listen.call(worker, "statechange", look);
      look();
    }, end);
  };
  Object.defineProperty(workers, "ready", {
    ...ready,
    get() {
      asked = true;
      if (registered) untilReady(this);
      return ready.get.call(this);
    },
  });
  patch(workers, "register", (original) => function (...given) {
    const promise = original.apply(this, given);
    then.call(promise, () => { registered = true; if (asked) untilReady(this); }, () => {});
    return promise;
  });
}
watchPromise(prototypeOf("SubtleCrypto"), "decrypt", "deriveBits", "deriveKey", "digest", "encrypt",
  "exportKey", "generateKey", "importKey", "sign", "unwrapKey", "verify", "wrapKey");
watchPromise(globalThis.WebAssembly, "compile", "compileStreaming", "instantiate", "instantiateStreaming");
watchPromise(prototypeOf("StorageManager"), "estimate", "getDirectory", "persist", "persisted");
watchPromise(prototypeOf("StorageBucketManager"), "delete", "keys", "open");
watchPromise(prototypeOf("StorageBucket"), "estimate", "expires", "getDirectory", "persist", "persisted",
  "setExpires");
watchPromise(prototypeOf("FontFace"), "load");
watchPromise(prototypeOf("FontFaceSet"), "load");
watchPromise(prototypeOf("HTMLImageElement"), "decode");
watchPromise(globalThis, "createImageBitmap");
watchPromise(prototypeOf("MediaDevices"), "enumerateDevices", "getDisplayMedia", "getUserMedia");
watchPromise(globalThis.Notification, "requestPermission");
watchPromise(prototypeOf("Permissions"), "query");
watchPromise(prototypeOf("Clipboard"), "read", "readText", "write", "writeText");
watchPromise(prototypeOf("WakeLock"), "request");
watchPromise(prototypeOf("LockManager"), "query");
patch(prototypeOf("LockManager"), "request", (original) => function (lock, ...given) {
  // A lock may be held forever; only its acquisition is waited for.
  const end = begin();
  const callback = given.pop();
  const promise = original.call(this, lock, ...given, function (...granted) {
    end();
    return callback.apply(this, granted);
  });
  then.call(promise, end, end);
  return promise;
});
watchPromise(prototypeOf("FileSystemDirectoryHandle"), "getDirectoryHandle", "getFileHandle",
  "removeEntry", "resolve");
watchPromise(prototypeOf("FileSystemFileHandle"), "createWritable", "getFile");
watchPromise(prototypeOf("FileSystemHandle"), "isSameEntry", "queryPermission", "remove");
watchPromise(prototypeOf("FileSystemWritableFileStream"), "close", "seek", "truncate", "write");
watchPromise(prototypeOf("WritableStreamDefaultWriter"), "close", "write");
watchPromise(prototypeOf("ReadableStream"), "pipeTo");
watchPromise(prototypeOf("CookieStore"), "delete", "get", "getAll", "set");
watchPromise(prototypeOf("Navigator"), "getBattery", "getInstalledRelatedApps", "requestMediaKeySystemAccess");
watchPromise(prototypeOf("CredentialsContainer"), "preventSilentAccess");
watchPromise(globalThis.PublicKeyCredential, "getClientCapabilities", "isConditionalMediationAvailable",
  "isUserVerifyingPlatformAuthenticatorAvailable");
watchPromise(prototypeOf("GPU"), "requestAdapter");
watchPromise(prototypeOf("GPUAdapter"), "requestDevice");
watchPromise(prototypeOf("XRSystem"), "isSessionSupported");
watchPromise(prototypeOf("Keyboard"), "getLayoutMap");
for (const type of ["AudioDecoder", "AudioEncoder", "VideoDecoder", "VideoEncoder"]) {
  watchPromise(globalThis[type], "isConfigSupported");
}
watchPromise(prototypeOf("NavigatorUAData"), "getHighEntropyValues");
watchPromise(prototypeOf("MediaCapabilities"), "decodingInfo", "encodingInfo");
watchPromise(prototypeOf("Document"), "hasStorageAccess", "requestStorageAccess");
watchPromise(prototypeOf("OfflineAudioContext"), "startRendering");
watchPromise(prototypeOf("BaseAudioContext"), "decodeAudioData");
watchPromise(prototypeOf("Worklet"), "addModule");

// ---- Images of a canvas: Chromium encodes them when it is idle, which it never is in virtual time, or after a
// second. That second is a timer's; real time is waited for only afterwards.
const ENCODING_MS = 1001;
const encoding = () => {
  const key = {};
  let end = () => timers.delete(key);
  timers.set(key, now() + ENCODING_MS);
  setTimeout.call(globalThis, () => { if (timers.delete(key)) end = begin(); }, ENCODING_MS);
  return () => end();
};
patch(prototypeOf("HTMLCanvasElement"), "toBlob", (original) => function (callback, ...rest) {
  const end = encoding();
  try {
    return original.call(this, (blob) => { end(); callback(blob); }, ...rest);
  } catch (error) { end(); throw error; }
});
watchWith(encoding, prototypeOf("OffscreenCanvas"), "convertToBlob");

patch(prototypeOf("Geolocation"), "getCurrentPosition", (original) => function (found, failed, ...rest) {
  const result = original.call(this, (at) => { end(); found(at); }, (error) => { end(); failed?.(error); }, ...rest);
  const end = begin();
  return result;
});

// ---- IndexedDB: a request or transaction is pending until one of its final events, except while a request is blocked:
// it goes on when other connections are closed.
export const untilEvent = (target, ...events) => {
  if (!target) return;
  const end = begin();
  for (const event of events) listen.call(target, event, end);
};
const blocked = newSet();
for (const method of ["open", "deleteDatabase"]) {
  patch(prototypeOf("IDBFactory"), method, (original) => function (...given) {
    const request = original.apply(this, given);
    untilEvent(request, "success", "error", "blocked");
    listen.call(request, "blocked", () => blocked.add(request));
    return request;
  });
}
patch(prototypeOf("IDBDatabase"), "close", (original) => function (...given) {
  const result = original.apply(this, given);
  blocked.forEach((request) => { untilEvent(request, "success", "error"); });
  blocked.clear();
  return result;
});
watchPromise(prototypeOf("IDBFactory"), "databases");
patch(prototypeOf("IDBDatabase"), "transaction", (original) => function (...given) {
  const transaction = original.apply(this, given);
  untilEvent(transaction, "complete", "abort", "error");
  return transaction;
});
patch(prototypeOf("FileReader"), "readAsText", watchReader);
patch(prototypeOf("FileReader"), "readAsDataURL", watchReader);
patch(prototypeOf("FileReader"), "readAsArrayBuffer", watchReader);
function watchReader(original) {
  return function (...given) {
    const result = original.apply(this, given);
    untilEvent(this, "loadend");
    return result;
  };
}
