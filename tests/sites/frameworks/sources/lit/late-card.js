import { LitElement, html } from "lit";

customElements.define("late-card", class extends LitElement {
  render() { return html`<p>Defined late</p>`; }
});
