// Angular: its router with lazy components and resolvers, HttpClient, resources, signals, defer blocks,
// titles and metas; without zones, and with zone.js where the page is under /zones.
import { provideHttpClient } from "@angular/common/http";
import { PlatformLocation } from "@angular/common";
import { Component, ErrorHandler, provideZoneChangeDetection, provideZonelessChangeDetection } from "@angular/core";
import { bootstrapApplication } from "@angular/platform-browser";
import { RouterOutlet, provideRouter, withComponentInputBinding } from "@angular/router";
import { routes } from "./routes.js";

@Component({ selector: "app-root", imports: [RouterOutlet], template: "<nav>The menu</nav><router-outlet />" })
class App {}

const zones = location.pathname.includes("/zones/");
if (zones) await import("zone.js");
bootstrapApplication(App, {
  providers: [
    zones ? provideZoneChangeDetection() : provideZonelessChangeDetection(),
    provideHttpClient(),
    provideRouter(routes, withComponentInputBinding()),
  ],
});
