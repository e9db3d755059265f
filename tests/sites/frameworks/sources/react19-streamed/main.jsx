// HTML that React has made on a server, streamed in pieces that scripts put into place, and hydrated.
import { hydrateRoot } from "react-dom/client";
import { App } from "./App.jsx";

hydrateRoot(document.getElementById("app"), <App />);
