// Its activation takes long.
addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(fetch("/after?ms=500&text=x")));
