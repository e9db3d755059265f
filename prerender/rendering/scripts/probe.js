// Runs in every frame before any script of the page. It knows the work that virtual time does not
// see, and moves animation frames and idle callbacks onto the page's virtual clock.
//
// settle.py asks it between slices of virtual time: globalThis[Symbol.for("prerender.probe")]().
// Everything it calls later is taken now, because a page may replace any of it.
(() => {
  "use strict";
  const name = Symbol.for("prerender.probe");
  if (globalThis[name]) return;

  const { setTimeout, clearTimeout, setInterval, clearInterval, Promise, Map, Set, Math, Reflect } =
    globalThis;
  const now = performance.now.bind(performance);
  const { apply: call } = Reflect;
  const realFrame = globalThis.requestAnimationFrame?.bind(globalThis);
  const report = globalThis.reportError?.bind(globalThis) ?? (() => {});
  const listen = EventTarget.prototype.addEventListener;
  const then = Promise.prototype.then;
  const FRAME_MS = 1000 / 60;

  // ---- What is going on. Only counts and times, so that asking is cheap.
  // What these are asked to do is theirs, whatever a page makes of the prototypes.
  const own = (collection, type) => {
    for (const method of ["add", "clear", "delete", "forEach", "get", "has", "set", "values"]) {
      if (type.prototype[method]) collection[method] = type.prototype[method];
    }
    return collection;
  };
  const newMap = () => own(new Map(), Map);
  const newSet = () => own(new Set(), Set);
  const timers = newMap(); // id -> when a one-shot timer is due
  const intervals = newSet();
  const open = { working: 0, layout: 0, talking: 0 }; // what is under way outside virtual time
  let activity = 0; // grows with whatever happens there; stays when something hangs
  let mutations = 0;

  const begin = (kind = "working") => {
    let ended = false;
    open[kind]++;
    activity++;
    return () => {
      if (ended) return;
      ended = true;
      open[kind]--;
      activity++;
    };
  };

  const patch = (owner, method, make) => {
    const original = owner?.[method];
    if (typeof original !== "function") return;
    const replacement = make(original);
    Object.defineProperty(replacement, "name", { value: method });
    Object.defineProperty(replacement, "length", { value: original.length });
    const old = Object.getOwnPropertyDescriptor(owner, method);
    Object.defineProperty(owner, method, {
      configurable: true, writable: true, enumerable: old?.enumerable ?? true, value: replacement,
    });
  };

  // ---- Clocks stand still while a script runs: one that waits for them in a loop would never end.
  const PATIENT_CALLS = 1000;
  let skew = 0;
  const unstuck = (read) => {
    let last = NaN;
    let calls = 0;
    return () => {
      const time = read();
      if (time !== last) { last = time; calls = 0; } else if (++calls > PATIENT_CALLS) skew += 0.1;
      return time + skew;
    };
  };
  const OriginalDate = globalThis.Date;
  const dateNow = unstuck(OriginalDate.now.bind(OriginalDate));
  patch(OriginalDate, "now", () => function () { return Math.floor(dateNow()); });
  patch(Performance.prototype, "now", () => unstuck(now));
  const WatchedDate = new Proxy(OriginalDate, {
    construct(target, given, newTarget) {
      return Reflect.construct(target, given.length ? given : [Math.floor(dateNow())], newTarget);
    },
  });
  OriginalDate.prototype.constructor = WatchedDate;
  Object.defineProperty(globalThis, "Date", { configurable: true, writable: true, value: WatchedDate });

  // A delay as the browser understands it: ToInt32, and nothing is negative (HTML, section 8.6).
  const delayOf = (delay) => Math.max(0, delay | 0);

  // ---- Timers: virtual time runs them, the probe only knows that they are there.
  patch(globalThis, "setTimeout", (original) => function (callback, delay, ...rest) {
    if (typeof callback !== "function") {
      const id = original.call(globalThis, callback, delay, ...rest);
      timers.set(id, now() + delayOf(delay));
      original.call(globalThis, () => timers.delete(id), delay);
      return id;
    }
    const id = original.call(globalThis, function (...given) {
      timers.delete(id);
      return callback.apply(this, given);
    }, delay, ...rest);
    timers.set(id, now() + delayOf(delay));
    return id;
  });
  patch(globalThis, "setInterval", (original) => function (...given) {
    const id = original.apply(globalThis, given);
    intervals.add(id);
    return id;
  });
  for (const method of ["clearTimeout", "clearInterval"]) {
    // Either clears both kinds (HTML, section 8.6).
    patch(globalThis, method, (original) => function (id) {
      timers.delete(id);
      intervals.delete(id);
      return original.call(globalThis, id);
    });
  }

  patch(globalThis.Scheduler?.prototype, "postTask", (original) => function (callback, options) {
    const promise = original.apply(this, arguments);
    const key = {};
    timers.set(key, now() + delayOf(options?.delay));
    const end = () => timers.delete(key);
    then.call(promise, end, end);
    return promise;
  });
  patch(globalThis.AbortSignal, "timeout", (original) => function (delay) {
    const signal = original.apply(this, arguments);
    timers.set(signal, now() + delayOf(delay));
    listen.call(signal, "abort", () => timers.delete(signal));
    return signal;
  });

  // ---- Animation frames: real ones come every 16 ms of real time, in which virtual time may have
  // run out. Here they come every 16 ms of virtual time.
  let frames = newMap();
  let nextFrame = 0;
  const flushFrames = () => {
    const due = frames;
    frames = newMap();
    const time = now();
    due.forEach((callback) => {
      try { call(callback, globalThis, [time]); } catch (error) { report(error); }
    });
  };
  if (globalThis.requestAnimationFrame) {
    patch(globalThis, "requestAnimationFrame", () => function (callback) {
      if (typeof callback !== "function") throw new TypeError("parameter 1 is not of type 'Function'.");
      if (frames.size === 0) setTimeout.call(globalThis, flushFrames, FRAME_MS - (now() % FRAME_MS));
      frames.set(++nextFrame, callback);
      return nextFrame;
    });
    patch(globalThis, "cancelAnimationFrame", () => function (id) { frames.delete(id); });
  }

  // ---- Idle callbacks: at the end of a slice the page is idle.
  const idle = newMap();
  patch(globalThis, "requestIdleCallback", () => function (callback) {
    if (typeof callback !== "function") throw new TypeError("parameter 1 is not of type 'Function'.");
    const id = setTimeout.call(globalThis, () => {
      idle.delete(id);
      const end = now() + 50;
      callback({ didTimeout: false, timeRemaining: () => Math.max(0, end - now()) });
    }, 1);
    idle.set(id, now());
    return id;
  });
  patch(globalThis, "cancelIdleCallback", () => function (id) {
    idle.delete(id);
    clearTimeout.call(globalThis, id);
  });

  // ---- Promises that are kept outside the page's own thread.
  const watchPromise = (owner, ...methods) => {
    for (const method of methods) {
      patch(owner, method, (original) => function (...given) {
        const end = begin();
        let promise;
        try { promise = original.apply(this, given); } catch (error) { end(); throw error; }
        if (promise instanceof Promise) then.call(promise, end, end); else end();
        return promise;
      });
    }
  };
  const prototypeOf = (type) => globalThis[type]?.prototype;
  watchPromise(prototypeOf("Response"), "arrayBuffer", "blob", "bytes", "formData", "json", "text");
  watchPromise(prototypeOf("Blob"), "arrayBuffer", "bytes", "text");
  watchPromise(prototypeOf("ReadableStreamDefaultReader"), "read");
  watchPromise(prototypeOf("CacheStorage"), "delete", "has", "keys", "match", "open");
  watchPromise(prototypeOf("Cache"), "add", "addAll", "delete", "keys", "match", "matchAll", "put");
  watchPromise(prototypeOf("ServiceWorkerContainer"), "register", "getRegistration", "getRegistrations");
  watchPromise(prototypeOf("SubtleCrypto"), "decrypt", "deriveBits", "deriveKey", "digest", "encrypt",
    "exportKey", "generateKey", "importKey", "sign", "unwrapKey", "verify", "wrapKey");
  watchPromise(globalThis.WebAssembly, "compile", "compileStreaming", "instantiate", "instantiateStreaming");
  watchPromise(prototypeOf("StorageManager"), "estimate", "getDirectory", "persist", "persisted");
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
    // A lock may be held for ever; what is waited for is that it is had.
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
  watchPromise(prototypeOf("FileSystemWritableFileStream"), "close", "seek", "truncate", "write");
  watchPromise(prototypeOf("WritableStreamDefaultWriter"), "close", "write");
  watchPromise(prototypeOf("ReadableStream"), "pipeTo");
  watchPromise(prototypeOf("CookieStore"), "delete", "get", "getAll", "set");
  watchPromise(prototypeOf("Navigator"), "getBattery");
  watchPromise(prototypeOf("NavigatorUAData"), "getHighEntropyValues");
  watchPromise(prototypeOf("MediaCapabilities"), "decodingInfo");
  watchPromise(prototypeOf("Document"), "hasStorageAccess", "requestStorageAccess");
  watchPromise(prototypeOf("OffscreenCanvas"), "convertToBlob");
  watchPromise(prototypeOf("OfflineAudioContext"), "startRendering");
  watchPromise(prototypeOf("BaseAudioContext"), "decodeAudioData");
  watchPromise(prototypeOf("Worklet"), "addModule");
  watchPromise(prototypeOf("RTCPeerConnection"), "createAnswer", "createOffer", "setLocalDescription",
    "setRemoteDescription");
  patch(prototypeOf("HTMLCanvasElement"), "toBlob", (original) => function (callback, ...rest) {
    const end = begin();
    return original.call(this, (blob) => { end(); callback(blob); }, ...rest);
  });
  patch(prototypeOf("Geolocation"), "getCurrentPosition", (original) => function (found, failed, ...rest) {
    const end = begin();
    return original.call(this, (at) => { end(); found(at); }, (error) => { end(); failed?.(error); }, ...rest);
  });

  // ---- IndexedDB: a request or a transaction is open until one of its last events.
  const untilEvent = (target, ...events) => {
    if (!target) return;
    const end = begin();
    for (const event of events) listen.call(target, event, end);
  };
  for (const method of ["open", "deleteDatabase"]) {
    patch(prototypeOf("IDBFactory"), method, (original) => function (...given) {
      const request = original.apply(this, given);
      untilEvent(request, "success", "error", "blocked");
      return request;
    });
  }
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

  // ---- Those that answer when they like: worth waiting for their next word.
  const answering = (target, receiver = target, keepsTalking = false) => {
    let end = begin();
    let talks = () => {};
    const heard = () => {
      end();
      talks();
      if (keepsTalking) talks = begin("talking");
    };
    listen.call(receiver, "message", heard);
    listen.call(target, "error", () => end());
    return { asked() { end(); end = begin(); }, heard, end() { end(); talks(); } };
  };
  const subclass = (type, setUp) => {
    const Original = globalThis[type];
    if (!Original) return;
    const Watched = new Proxy(Original, {
      construct(target, given, newTarget) {
        const instance = Reflect.construct(target, given, newTarget);
        setUp(instance);
        return instance;
      },
    });
    Original.prototype.constructor = Watched;
    Object.defineProperty(globalThis, type, { configurable: true, writable: true, value: Watched });
  };
  const askedBy = (owner, calls) => {
    patch(owner, "postMessage", (original) => function (...given) {
      calls.asked();
      return original.apply(owner, given);
    });
  };
  subclass("Worker", (worker) => {
    const calls = answering(worker, worker, true);
    askedBy(worker, calls);
    const terminate = worker.terminate;
    worker.terminate = () => { calls.end(); terminate.call(worker); };
  });
  subclass("SharedWorker", (worker) => askedBy(worker.port, answering(worker, worker.port, true)));
  subclass("WebSocket", (socket) => {
    const calls = answering(socket, socket, true);
    listen.call(socket, "close", calls.end);
    const { send } = socket;
    socket.send = (...given) => { calls.asked(); return send.apply(socket, given); };
  });
  subclass("EventSource", (source) => {
    const calls = answering(source, source, true);
    // Events of an event stream have names of the site's own choice.
    patch(source, "addEventListener", (original) => function (type, ...given) {
      if (!["error", "message", "open"].includes(type)) listen.call(source, type, calls.heard);
      return original.call(source, type, ...given);
    });
  });
  subclass("BroadcastChannel", (channel) => {
    const { postMessage } = channel;
    channel.postMessage = (...given) => { activity++; return postMessage.apply(channel, given); };
  });

  // ---- What is told with the next real frame.
  const untilFrame = () => {
    if (!realFrame) return;
    const end = begin("layout");
    realFrame(() => realFrame(end));
  };
  const untilFrameAfter = (owner, ...methods) => {
    for (const method of methods) {
      patch(owner, method, (original) => function (...given) {
        untilFrame();
        return original.apply(this, given);
      });
    }
  };
  untilFrameAfter(globalThis, "scroll", "scrollBy", "scrollTo", "resizeBy", "resizeTo");
  untilFrameAfter(prototypeOf("Element"), "scroll", "scrollBy", "scrollIntoView", "scrollTo");
  for (const property of ["scrollTop", "scrollLeft"]) {
    const descriptor = Object.getOwnPropertyDescriptor(Element.prototype, property);
    Object.defineProperty(Element.prototype, property, {
      ...descriptor, set(value) { untilFrame(); descriptor.set.call(this, value); },
    });
  }
  patch(prototypeOf("Document"), "startViewTransition", (original) => function (...given) {
    const transition = original.apply(this, given);
    const end = begin();
    then.call(transition.finished, end, end);
    return transition;
  });

  // ---- Observers of layout are told with a real frame, and again with the next one when what they do
  // changes the layout. What has not come into view yet may be a part that loads when it is seen.
  const unseen = newSet();
  for (const type of ["IntersectionObserver", "ResizeObserver"]) {
    const Original = globalThis[type];
    if (!Original) continue;
    const Watched = new Proxy(Original, {
      construct(target, [callback, ...rest], newTarget) {
        if (typeof callback !== "function") return Reflect.construct(target, [callback, ...rest], newTarget);
        return Reflect.construct(target, [function (entries, ...given) {
          untilFrame();
          for (const { target: seen, isIntersecting } of entries) {
            if (isIntersecting === true) unseen.delete(seen);
          }
          return callback.call(this, entries, ...given);
        }, ...rest], newTarget);
      },
    });
    Original.prototype.constructor = Watched;
    Object.defineProperty(globalThis, type, { configurable: true, writable: true, value: Watched });
    const intersection = type === "IntersectionObserver";
    untilFrameAfter(Original.prototype, "observe");
    patch(Original.prototype, "observe", (original) => function (...given) {
      if (intersection) unseen.add(given[0]);
      return original.apply(this, given);
    });
    patch(Original.prototype, "unobserve", (original) => function (...given) {
      if (intersection) unseen.delete(given[0]);
      return original.apply(this, given);
    });
    patch(Original.prototype, "disconnect", (original) => function () {
      if (intersection) unseen.clear();
      return original.call(this);
    });
  }

  // ---- Closed shadow roots are closed to the page's own scripts only: the serialiser has to see them.
  const closed = new WeakSet();
  patch(prototypeOf("Element"), "attachShadow", (original) => function (options, ...rest) {
    if (options?.mode !== "closed") return original.call(this, options, ...rest);
    const root = original.call(this, { ...options, mode: "open" }, ...rest);
    closed.add(root);
    return root;
  });
  const hide = (owner, property, replace) => {
    const descriptor = owner && Object.getOwnPropertyDescriptor(owner, property);
    if (!descriptor?.get) return;
    const { get } = descriptor;
    Object.defineProperty(owner, property, {
      ...descriptor, get() { return replace(get.call(this), this); },
    });
  };
  hide(prototypeOf("Element"), "shadowRoot", (root) => (root && closed.has(root) ? null : root));
  hide(prototypeOf("ShadowRoot"), "mode", (mode, root) => (closed.has(root) ? "closed" : mode));

  // ---- The document itself.
  const count = new MutationObserver((records) => { mutations += records.length; });
  count.observe(document, { childList: true, characterData: true, subtree: true });

  const { getAnimations } = Document.prototype;
  const finishAnimations = () => {
    let finishing = false;
    for (const animation of getAnimations?.call(document) ?? []) {
      const end = animation.effect?.getComputedTiming().endTime;
      if (animation.playState !== "running" || !(end < Infinity)) continue;
      try { animation.finish(); } catch { continue; /* it cannot end, so it is not waited for */ }
      finishing = true;
    }
    if (finishing) untilFrame(); // their events come with it
  };

  // Frames of the same origin are part of the page; others cannot be asked.
  let foreign = 0;
  const frameStates = () => {
    const states = [];
    foreign = 0;
    for (let i = 0; i < globalThis.length; i++) {
      try {
        const probe = globalThis[i][name];
        if (probe) states[states.length] = probe();
      } catch {
        foreign++;
      }
    }
    return states;
  };

  const lazy = 'img[loading="lazy"], iframe[loading="lazy"]';
  const { querySelectorAll } = Document.prototype;
  const summed = ["intervals", "frames", "working", "layout", "talking", "activity", "mutations",
    "unseen", "foreign"];
  const state = (awaitFrame = false) => {
    if (awaitFrame) untilFrame();
    const within = frameStates();
    finishAnimations();
    const time = now();
    const due = [];
    let pending = 0;
    timers.forEach((at) => { due[pending++] = at - time; });
    const ready = globalThis.prerenderReady;
    const own = {
      complete: document.readyState === "complete",
      ready: typeof ready === "boolean" ? ready : null,
      timers: due,
      intervals: intervals.size,
      frames: frames.size,
      working: open.working + idle.size,
      layout: open.layout,
      talking: open.talking,
      foreign,
      activity,
      unseen: unseen.size + querySelectorAll.call(document, lazy).length,
      height: document.documentElement?.scrollHeight ?? 0,
      mutations: (mutations += count.takeRecords().length),
    };
    for (const frame of within) {
      for (const at of frame.timers) due[pending++] = at;
      for (const key of summed) own[key] += frame[key];
    }
    return own;
  };
  // ---- What the page's scripts complain of, for the owner of the site.
  const errors = state.errors = [];
  const complain = (...parts) => {
    if (errors.length < 20) errors.push(parts.map(String).join(" ").slice(0, 500));
  };
  listen.call(globalThis, "error", ({ message }) => { if (message) complain(message); });
  listen.call(globalThis, "unhandledrejection", ({ reason }) => complain("Unhandled:", reason));
  patch(globalThis.console, "error", (original) => function (...given) {
    try { complain(...given); } catch { /* an object that cannot be text */ }
    return original.apply(this, given);
  });

  Object.defineProperty(globalThis, name, { value: state });
})();
