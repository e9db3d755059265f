// Login with the admin token.

import * as api from "./api.js";
import { h, replace } from "./dom.js";

export function login(main, done) {
  const wrong = h("p", { class: "wrong", role: "alert" });
  const token = h("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  const form = h("form", {
    class: "card login",
    async onsubmit(event) {
      event.preventDefault();
      wrong.textContent = "";
      try {
        await api.post("session", { token: token.value });
        await done();
      } catch (error) {
        wrong.textContent = error.message;
        token.select();
      }
    },
  },
  h("h1", {}, "Log in"),
  h("p", { class: "note" }, "Enter the [admin] token of this proxy."),
  h("label", { for: "token" }, "Token"), token, wrong,
  h("button", { type: "submit", class: "primary" }, "Log in"));
  replace(main, form);
  token.focus();
}
