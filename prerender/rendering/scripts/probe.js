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
  const report = globalThis.reportError?.bind(globalThis) ?? (() => {});
  const listen = EventTarget.prototype.addEventListener;
  const then = Promise.prototype.then;
  const FRAME_MS = 1000 / 60;

  // ---- What is going on. Only counts and times, so that asking is cheap.
  const timers = new Map(); // id -> when a one-shot timer is due
  const intervals = new Set();
  const open = { working: 0, layout: 0 }; // what is under way outside virtual time
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

  // ---- Timers: virtual time runs them, the probe only knows that they are there.
  patch(globalThis, "setTimeout", (original) => function (callback, delay, ...rest) {
    if (typeof callback !== "function") return original.call(globalThis, callback, delay, ...rest);
    const id = original.call(globalThis, function (...given) {
      timers.delete(id);
      return callback.apply(this, given);
    }, delay, ...rest);
    timers.set(id, now() + Math.max(0, +delay || 0));
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

  // ---- Animation frames: real ones come every 16 ms of real time, in which virtual time may have
  // run out. Here they come every 16 ms of virtual time.
  let frames = new Map();
  let nextFrame = 0;
  const flushFrames = () => {
    const due = frames;
    frames = new Map();
    const time = now();
    for (const callback of due.values()) {
      try { callback.call(globalThis, time); } catch (error) { report(error); }
    }
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
  const idle = new Map();
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
  const answering = (target, receiver = target) => {
    let end = begin();
    listen.call(receiver, "message", () => { end(); activity++; });
    listen.call(target, "error", () => end());
    return { asked() { end(); end = begin(); }, end: () => end() };
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
    const calls = answering(worker);
    askedBy(worker, calls);
    const terminate = worker.terminate;
    worker.terminate = () => { calls.end(); terminate.call(worker); };
  });
  subclass("SharedWorker", (worker) => askedBy(worker.port, answering(worker, worker.port)));
  subclass("WebSocket", (socket) => {
    const calls = answering(socket);
    listen.call(socket, "close", calls.end);
    const { send } = socket;
    socket.send = (...given) => { calls.asked(); return send.apply(socket, given); };
  });
  subclass("EventSource", (source) => {
    answering(source);
  });
  subclass("BroadcastChannel", (channel) => {
    const { postMessage } = channel;
    channel.postMessage = (...given) => { activity++; return postMessage.apply(channel, given); };
  });

  // ---- Observers of layout get their first word with a real frame.
  for (const type of ["IntersectionObserver", "ResizeObserver"]) {
    const Original = globalThis[type];
    if (!Original) continue;
    const ends = new WeakMap();
    const done = (observer) => { ends.get(observer)?.(); };
    subclass(type, () => {});
    const Counted = globalThis[type];
    Object.defineProperty(globalThis, type, {
      configurable: true, writable: true,
      value: new Proxy(Counted, {
        construct(target, [callback, ...rest], newTarget) {
          const observer = Reflect.construct(target, [function (...given) {
            done(observer);
            return callback.apply(this, given);
          }, ...rest], newTarget);
          return observer;
        },
      }),
    });
    patch(Original.prototype, "observe", (original) => function (...given) {
      done(this);
      const result = original.apply(this, given);
      ends.set(this, begin("layout"));
      return result;
    });
    patch(Original.prototype, "disconnect", (original) => function () {
      done(this);
      return original.call(this);
    });
  }

  // ---- The document itself.
  const count = new MutationObserver((records) => { mutations += records.length; });
  count.observe(document, { childList: true, characterData: true, subtree: true });

  const finishAnimations = () => {
    let finishing = 0;
    for (const animation of document.getAnimations?.() ?? []) {
      const end = animation.effect?.getComputedTiming().endTime;
      if (animation.playState !== "running" || !(end < Infinity)) continue;
      finishing++;
      try { animation.finish(); } catch { /* it cannot end, so it is not waited for */ }
    }
    return finishing;
  };

  // Frames of the same origin are part of the page; others cannot be asked.
  const frameStates = () => {
    const states = [];
    for (let i = 0; i < globalThis.length; i++) {
      try {
        const probe = globalThis[i][name];
        if (probe) states.push(probe());
      } catch { /* another origin */ }
    }
    return states;
  };

  const state = () => {
    const time = now();
    const due = [...timers.values()].map((at) => at - time);
    const ready = globalThis.prerenderReady;
    const own = {
      complete: document.readyState === "complete",
      ready: typeof ready === "boolean" ? ready : null,
      timers: due,
      intervals: intervals.size,
      frames: frames.size,
      working: open.working + idle.size,
      layout: open.layout + finishAnimations(),
      activity,
      mutations: (mutations += count.takeRecords().length),
    };
    for (const frame of frameStates()) {
      own.timers.push(...frame.timers);
      for (const key of ["intervals", "frames", "working", "layout", "activity", "mutations"]) own[key] += frame[key];
    }
    return own;
  };
  Object.defineProperty(globalThis, name, { value: state });
})();
