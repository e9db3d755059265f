// Removes APIs that bypass the gateway, in every frame. Chromium has no switch for them. A TURN server that closes
// its connection kills the network process of Chromium 156, and with it the renders of all pages.
for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection", "WebTransport"]) {
  delete globalThis[name];
}
