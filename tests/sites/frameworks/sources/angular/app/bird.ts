import { httpResource } from "@angular/common/http";
import { Component, effect, inject, input } from "@angular/core";
import { Meta, Title } from "@angular/platform-browser";

@Component({
  template: `
    @if (bird.error()) { <p>Unknown bird {{ id() }}</p> }
    @else if (bird.hasValue()) { <h1>{{ bird.value().name }}</h1><p>{{ places().join(", ") }}</p> }
    @else { <p>Loading</p> }`,
})
export class Bird {
  id = input.required<string>();
  places = input.required<string[]>();
  bird = httpResource<{ name: string }>(() => `/api/birds/${this.id()}`);
  private title = inject(Title);
  private meta = inject(Meta);

  constructor() {
    effect(() => {
      if (this.bird.hasValue()) this.title.setTitle(this.bird.value().name);
      if (this.bird.error()) this.meta.addTag({ name: "prerender-status-code", content: "404" });
    });
  }
}
