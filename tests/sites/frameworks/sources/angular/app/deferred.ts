import { Component } from "@angular/core";
import { Far } from "./far.js";

@Component({
  imports: [Far],
  template: `
    @defer (on idle) { <far-part name="idle" /> } @placeholder { <p>waiting to be idle</p> }
    @defer (on timer(600ms)) { <far-part name="timer" /> } @placeholder { <p>waiting for a timer</p> }
    <div style="height: 3000px"></div>
    @defer (on viewport; prefetch on idle) { <far-part name="viewport" /> }
    @placeholder (minimum 200ms) { <p>waiting to be seen</p> }
    @loading (after 10ms; minimum 300ms) { <p>Loading</p> }`,
})
export class Deferred {}
