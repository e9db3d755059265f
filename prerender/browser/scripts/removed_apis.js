// Replaces APIs that bypass the gateway, in every frame, by ones that never connect. Chromium has no switch for them. A
// TURN server that closes its connection kills the network process of Chromium 156, and with it the renders of all pages.
{
  const never = () => new Promise(() => {});
  const handlers = (...types) => Object.fromEntries(types.map((type) => [`on${type}`, null]));
  class RTCDataChannel extends EventTarget {
    constructor(label = "") {
      super();
      Object.assign(this, { label: String(label), readyState: "connecting", bufferedAmount: 0, id: null },
        handlers("bufferedamountlow", "close", "closing", "error", "message", "open"));
    }
    send() { throw new DOMException("RTCDataChannel.readyState is not 'open'", "InvalidStateError"); }
    close() { this.readyState = "closed"; }
  }
  class RTCPeerConnection extends EventTarget {
    static generateCertificate() { return never(); }
    constructor(configuration = {}) {
      super();
      Object.assign(this, { connectionState: "new", iceConnectionState: "new", iceGatheringState: "new",
        signalingState: "stable", localDescription: null, remoteDescription: null },
        handlers("connectionstatechange", "datachannel", "icecandidate", "icecandidateerror",
          "iceconnectionstatechange", "icegatheringstatechange", "negotiationneeded", "signalingstatechange", "track"));
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
    close() { this.connectionState = this.iceConnectionState = this.signalingState = "closed"; }
  }
  class WebTransport {
    constructor() {
      this.ready = never();
      this.closed = never();
    }
    close() {}
  }
  const replaced = { RTCPeerConnection, webkitRTCPeerConnection: RTCPeerConnection, WebTransport };
  for (const [name, value] of Object.entries(replaced)) {
    if (delete globalThis[name] && (name !== "WebTransport" || isSecureContext)) {
      Object.defineProperty(globalThis, name, { configurable: true, writable: true, value });
    }
  }
}
