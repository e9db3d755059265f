import { renderToReadableStream } from "react-dom/server.edge";
import { App } from "./App.jsx";

export const render = async () => new Response(await renderToReadableStream(<App />)).text();
