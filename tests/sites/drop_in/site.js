// A shop whose pages are rendered in the browser, behind prerender-node. It prints its port on standard output
// and reads the URL of the prerender service from standard input. /asked tells what it was asked for.
"use strict";
const express = require("express");
const prerender = require("prerender-node");

const page = `<!DOCTYPE html><title>Shop</title><p id="out">shell</p><script>
  const name = location.hash.slice(2) || location.pathname + location.search;
  fetch("/api/items?name=" + encodeURIComponent(name)).then((answer) => answer.json()).then((item) => {
    document.title = item.name;
    out.textContent = "rendered " + item.name;
    if (item.name.startsWith("/gone")) {
      document.head.insertAdjacentHTML("beforeend", '<meta name="prerender-status-code" content="404">');
    }
  });
</script>`;

const app = express();
const asked = [];
app.get("/asked", (request, response) => response.json(asked));
app.use((request, response, next) => {
  asked.push({ url: request.url, headers: request.headers });
  next();
});
app.use(prerender.set("prerenderToken", process.env.TOKEN).set("forwardHeaders", false));
app.get("/api/items", (request, response) => response.json({ name: request.query.name }));
app.get("/moved", (request, response) => response.redirect(301, "/there"));
app.get("/report", (request, response) => response.type("application/pdf").send("%PDF"));
app.use((request, response) => response.type("html").send(page));

const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.once("data", (url) => {
  prerender.set("prerenderServiceUrl", url.toString().trim());
  console.log("ready");
});
process.stdin.on("end", () => process.exit());
