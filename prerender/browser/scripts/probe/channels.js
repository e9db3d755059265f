import { requested, untilEvent } from "./async_work.js";
import { begin, call, countActivity, listen, mutations, newWeakMap, patch, prototypeOf, Reflect } from "./core.js";
import { noteMessage } from "./document.js";

// ---- Channels that respond at any time: their next message is waited for, and what may follow it.
export let acknowledged = 0; // first messages after a request, or of channels that are one themselves
export let pushed = 0; // messages beyond the number of requests
// Protocols begin with two or three requests that are only acknowledged. Further ones are heartbeats, unless the page
// has changed since.
const MOST_ACKNOWLEDGED = 3;
const answering = (target, receiver = target, asks = true) => {
  let end = begin();
  let left = MOST_ACKNOWLEDGED;
  let unanswered = asks ? 1 : 0;
  let mutationsBefore = 0;
  let talks = () => {};
  const calls = {
    asked(given) {
      end();
      end = begin();
      asks = true;
      unanswered++;
      const ports = given?.transfer ?? given;
      for (let i = 0; i < ports?.length; i++) joinPort(partners.get(ports[i]), calls);
    },
    heard({ ports }) {
      noteMessage();
      end();
      talks();
      talks = begin("talking");
      if (mutations > mutationsBefore) left = MOST_ACKNOWLEDGED;
      mutationsBefore = mutations;
      if (asks && left-- > 0) acknowledged++;
      asks = false;
      if (unanswered-- <= 0) { unanswered = 0; pushed++; }
      for (let i = 0; i < ports?.length; i++) joinPort(ports[i], calls);
    },
    end() { end(); talks(); },
  };
  listen.call(receiver, "message", calls.heard);
  listen.call(target, "error", () => end());
  return calls;
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
  if (Original.prototype.constructor === Original) Original.prototype.constructor = Watched;
  Object.defineProperty(globalThis, type, { configurable: true, writable: true, value: Watched });
};

// ---- Media: waited for until their metadata is known. Elements in the page dispatch an event when they begin to
// load; others need a listener before.
const { HTMLMediaElement } = globalThis;
if (HTMLMediaElement) {
  const preload = Object.getOwnPropertyDescriptor(HTMLMediaElement.prototype, "preload").get;
  const watchMedia = ({ target }) => {
    if (!(target instanceof HTMLMediaElement)) return;
    // A file that has arrived is suspended, too, before another thread has found its metadata.
    const untilThen = call(preload, target, []) === "none" ? ["suspend"] : [];
    untilEvent(target, "loadedmetadata", "error", "abort", "emptied", "stalled", ...untilThen);
  };
  listen.call(globalThis, "loadstart", watchMedia, true);
  const watchLoading = (media) => {
    if (!media.isConnected) listen.call(media, "loadstart", watchMedia, { once: true });
  };
  subclass("Audio", watchLoading);
  const src = Object.getOwnPropertyDescriptor(HTMLMediaElement.prototype, "src");
  Object.defineProperty(HTMLMediaElement.prototype, "src", {
    ...src,
    set(value) { watchLoading(this); src.set.call(this, value); },
  });
}

// ---- Instrumented channels.
const askedBy = (owner, calls) => {
  patch(owner, "postMessage", (original) => function (...given) {
    const result = original.apply(owner, given);
    calls.asked(given[1]);
    return result;
  });
};
// Ports that were sent to a worker, or by one, are part of its channel. Others stay as they are: frameworks post
// messages to themselves in place of timers.
const partners = newWeakMap(); // port -> the other end
subclass("MessageChannel", ({ port1, port2 }) => { partners.set(port1, port2); partners.set(port2, port1); });
const joinPort = (port, calls) => {
  if (!(port instanceof MessagePort)) return;
  listen.call(port, "message", calls.heard);
  askedBy(port, calls);
};
subclass("Worker", (worker) => {
  const calls = answering(worker);
  askedBy(worker, calls);
  const terminate = worker.terminate;
  worker.terminate = () => { calls.end(); terminate.call(worker); };
});
subclass("SharedWorker", (worker) => askedBy(worker.port, answering(worker, worker.port)));
let service = null;
patch(prototypeOf("ServiceWorker"), "postMessage", (original) => function (...given) {
  const result = original.apply(this, given);
  service ??= answering(globalThis.navigator.serviceWorker);
  service.asked(given[1]);
  return result;
});
subclass("WebSocket", (socket) => {
  const calls = answering(socket, socket, false);
  listen.call(socket, "close", calls.end);
  const { send } = socket;
  socket.send = (...given) => { send.apply(socket, given); calls.asked(null); };
});
subclass("EventSource", (source) => {
  const answered = requested();
  listen.call(source, "open", answered);
  listen.call(source, "error", answered);
  const calls = answering(source);
  // Events of an event stream can have any name.
  patch(source, "addEventListener", (original) => function (type, ...given) {
    if (!["error", "message", "open"].includes(type)) listen.call(source, type, calls.heard);
    return original.call(source, type, ...given);
  });
});
subclass("BroadcastChannel", (channel) => {
  const { postMessage } = channel;
  channel.postMessage = (...given) => { countActivity(); return postMessage.apply(channel, given); };
});
