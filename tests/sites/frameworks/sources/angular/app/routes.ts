import { Component, inject } from "@angular/core";
import { HttpClient } from "@angular/common/http";
import { Meta } from "@angular/platform-browser";
import { ActivatedRouteSnapshot, Routes } from "@angular/router";
import { Birds } from "./birds.js";

@Component({ template: "<h1>There is no such page</h1>" })
class Missing {
  constructor() { inject(Meta).addTag({ name: "prerender-status-code", content: "404" }); }
}

const places = ({ params }: ActivatedRouteSnapshot) => inject(HttpClient).get<string[]>(`/api/birds/${params["id"]}/places`);
const views: Routes = [
  { path: "birds", component: Birds, title: "All birds" },
  { path: "birds/:id", loadComponent: () => import("./bird.js").then(({ Bird }) => Bird), resolve: { places } },
  { path: "deferred", loadComponent: () => import("./deferred.js").then(({ Deferred }) => Deferred) },
  { path: "**", component: Missing, title: "Not here" },
];
export const routes: Routes = [{ path: "zones", children: views }, ...views];
