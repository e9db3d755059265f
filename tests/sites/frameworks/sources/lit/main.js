// Lit: web components with shadow roots, adopted style sheets and slots, tasks, directives, #! routes.
import { Task } from "@lit/task";
import { LitElement, css, html } from "lit";
import { asyncReplace } from "lit/directives/async-replace.js";
import { repeat } from "lit/directives/repeat.js";
import { until } from "lit/directives/until.js";

const load = async (path) => (await fetch(path)).json();
const routes = [
  [/^#!\/birds$/, () => html`<bird-list></bird-list>`],
  [/^#!\/birds\/(\d+)$/, (id) => html`<bird-card bird=${id}><b slot="footer">From the light</b> unnamed</bird-card>`],
  [/^#!\/until$/, () => html`<p>${until(load("/api/birds/2").then(({ name }) => name), "Loading")}</p>`],
  [/^#!\/replaced$/, () => html`<p>${asyncReplace(countdown())}</p>`],
  [/^#!\/lazy$/, () => { import("./late-card.js"); return html`<late-card>What its definition hides</late-card>`; }],
];

async function* countdown() {
  for (let left = 3; left > 0; left--) {
    yield `waiting ${left}`;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  yield "Replaced to the end";
}

class BirdApp extends LitElement {
  static properties = { hash: { state: true } };
  static styles = css`:host { font-style: italic; }`;

  constructor() {
    super();
    this.hash = location.hash;
    addEventListener("hashchange", () => { this.hash = location.hash; });
  }

  render() {
    for (const [pattern, view] of routes) {
      const found = pattern.exec(this.hash);
      if (found) return html`<nav>The menu</nav>${view(...found.slice(1))}`;
    }
    return html`<h1>There is no such page</h1>`;
  }
}

class BirdList extends LitElement {
  static styles = [css`li { color: rgb(20, 60, 120); }`, css`.large { font-weight: 700; }`];

  birds = new Task(this, { task: () => load("/api/birds"), args: () => [] });

  render() {
    return this.birds.render({
      pending: () => html`<p>Loading</p>`,
      complete: (birds) => html`<ul>${repeat(birds, ({ id }) => id, ({ name, span }) => html`
        <li class=${span > 100 ? "large" : ""}>${name}</li>`)}</ul>`,
    });
  }

  updated() { document.title = `Birds: ${this.birds.value?.length}`; }
}

class BirdCard extends LitElement {
  static properties = { bird: { type: Number } };
  static styles = css`
    ::slotted(b) { color: rgb(200, 0, 0); }
    h2 { background-color: rgb(240, 240, 200); }
  `;

  task = new Task(this, {
    task: async ([id]) => ({ ...await load(`/api/birds/${id}`), places: await load(`/api/birds/${id}/places`) }),
    args: () => [this.bird],
  });

  render() {
    const bird = this.task.value;
    return html`<h2>${bird?.name ?? "Loading"}</h2><slot></slot>
      <bird-places .places=${bird?.places ?? ["Loading places"]}></bird-places>
      <footer><slot name="footer">No footer</slot></footer><slot name="empty">What stands in an empty slot</slot>`;
  }
}

class BirdPlaces extends LitElement {
  static properties = { places: { attribute: false } };
  render() { return html`<ol>${this.places.map((place) => html`<li>${place}</li>`)}</ol>`; }
}

customElements.define("bird-places", BirdPlaces);
customElements.define("bird-card", BirdCard);
customElements.define("bird-list", BirdList);
customElements.define("bird-app", BirdApp);
