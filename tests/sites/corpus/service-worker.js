// Takes over at once, and answers everything but the pages themselves.
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  if (event.request.mode !== "navigate") event.respondWith(new Response("from the service worker"));
});
