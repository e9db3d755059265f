addEventListener("message", (event) => event.waitUntil(new Promise((done) => setTimeout(() => {
  event.source.postMessage("answered");
  done();
}, 700))));
