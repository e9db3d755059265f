// Replaces APIs that bypass the gateway, in every frame, by ones that never connect. Chromium has no switch for them. A
// TURN server that closes its connection kills the network process of Chromium 156, and with it the renders of all pages.
{
  const never = () => new Promise(() => {});
  const values = new WeakMap();
  const set = (object, changed) => values.set(object, { ...values.get(object), ...changed });
  // Accessors of the prototype, as in browsers: adapters look for them, and replace some.
  const define = (type, initial, ...events) => {
    const add = (name, value, setter) => Object.defineProperty(type.prototype, name, {
      configurable: true, enumerable: true, get() { return values.get(this)?.[name] ?? value; }, set: setter,
    });
    for (const [name, value] of Object.entries(initial)) add(name, value, undefined);
    for (const event of events) {
      const name = `on${event}`;
      add(name, null, function (handler) { set(this, { [name]: handler }); });
    }
  };
  class RTCDataChannel extends EventTarget {
    constructor(label = "") {
      super();
      set(this, { label: String(label) });
    }
    send() { throw new DOMException("RTCDataChannel.readyState is not 'open'", "InvalidStateError"); }
    close() { set(this, { readyState: "closed" }); }
  }
  define(RTCDataChannel, { label: "", readyState: "connecting", bufferedAmount: 0, id: null },
    "bufferedamountlow", "close", "closing", "error", "message", "open");
  class RTCPeerConnection extends EventTarget {
    static generateCertificate() { return never(); }
    constructor(configuration = {}) {
      super();
      this.getConfiguration = () => configuration;
    }
    addTrack() { return {}; }
    addTransceiver() { return {}; }
    removeTrack() {}
    createDataChannel(label) { return new RTCDataChannel(label); }
    createAnswer() { return never(); }
    createOffer() { return never(); }
    addIceCandidate() { return never(); }
    setLocalDescription() { return never(); }
    setRemoteDescription() { return never(); }
    getStats() { return Promise.resolve(new Map()); }
    getReceivers() { return []; }
    getSenders() { return []; }
    getTransceivers() { return []; }
    restartIce() {}
    setConfiguration() {}
    close() { set(this, { connectionState: "closed", iceConnectionState: "closed", signalingState: "closed" }); }
  }
  define(RTCPeerConnection, {
    connectionState: "new", iceConnectionState: "new", iceGatheringState: "new", signalingState: "stable",
    localDescription: null, currentLocalDescription: null, pendingLocalDescription: null,
    remoteDescription: null, currentRemoteDescription: null, pendingRemoteDescription: null,
    canTrickleIceCandidates: null, sctp: null,
  }, "connectionstatechange", "datachannel", "icecandidate", "icecandidateerror", "iceconnectionstatechange",
  "icegatheringstatechange", "negotiationneeded", "signalingstatechange", "track");
  class WebTransport {
    ready = never();
    closed = never();
    draining = never();
    datagrams = { readable: new ReadableStream(), writable: new WritableStream() };
    incomingBidirectionalStreams = new ReadableStream();
    incomingUnidirectionalStreams = new ReadableStream();
    createBidirectionalStream() { return never(); }
    createUnidirectionalStream() { return never(); }
    getStats() { return never(); }
    close() {}
  }
  const replaced = { RTCPeerConnection, webkitRTCPeerConnection: RTCPeerConnection, WebTransport };
  for (const [name, value] of Object.entries(replaced)) {
    if (delete globalThis[name] && (name !== "WebTransport" || isSecureContext)) {
      Object.defineProperty(globalThis, name, { configurable: true, writable: true, value });
    }
  }
}
