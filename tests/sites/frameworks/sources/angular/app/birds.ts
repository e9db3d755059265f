import { AsyncPipe, DecimalPipe } from "@angular/common";
import { HttpClient } from "@angular/common/http";
import { Component, computed, inject, signal } from "@angular/core";
import { RouterLink } from "@angular/router";
import { delay } from "rxjs";

interface Item { id: number; name: string; span: number }

@Component({
  imports: [AsyncPipe, DecimalPipe, RouterLink],
  styles: "li { color: rgb(130, 0, 90); }",
  template: `
    <h1>Large ones: {{ large() }}</h1>
    <ul>
      @for (bird of birds(); track bird.id) {
        <li><a [routerLink]="['..', 'birds', bird.id]">{{ bird.name }}</a> {{ bird.span / 100 | number: "1.2-2" }} m</li>
      } @empty { <li>Loading</li> }
    </ul>
    <p>{{ (later | async)?.length ?? "waiting" }} in all</p>`,
})
export class Birds {
  private http = inject(HttpClient);
  birds = signal<Item[]>([]);
  large = computed(() => this.birds().filter(({ span }) => span > 100).length);
  later = this.http.get<Item[]>("/api/birds").pipe(delay(600));

  constructor() {
    this.http.get<Item[]>("/api/birds").subscribe((found) => this.birds.set(found));
  }
}
