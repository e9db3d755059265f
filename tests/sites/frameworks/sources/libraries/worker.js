import { wrap } from "comlink";

export async function show(app) {
  const api = wrap(new Worker(new URL("./worker.thread.js", import.meta.url), { type: "module" }));
  app.innerHTML = `<p>From a worker: ${await api.longest()}</p>`;
}
