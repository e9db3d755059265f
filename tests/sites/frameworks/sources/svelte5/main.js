// Svelte 5: runes, await blocks, transitions and tweens, a boundary, svelte:head, lazy components, #! routes.
import { mount } from "svelte";
import App from "./App.svelte";

mount(App, { target: document.getElementById("app") });
