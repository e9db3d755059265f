import { httpResource } from "@angular/common/http";
import { Component, input } from "@angular/core";

@Component({ selector: "far-part", template: "<p>{{ part.value() ?? 'Loading' }}</p>" })
export class Far {
  name = input.required<string>();
  part = httpResource.text(() => `/parts/${this.name()}`);
}
