// What does not go by the gateway is not there, in no frame. Chromium has no switch for these. A TURN server
// that closes its connection ends the network process of Chromium 156, and the renders of all pages with it.
for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "WebTransport"]) {
  delete globalThis[name];
}
