// Vue 3: Vue Router with lazy routes (by history, and in #! where the page is /hashbang), Pinia, Suspense,
// Transition, Teleport, KeepAlive, vue-i18n with words that are fetched, Unhead.
import { createHead } from "@unhead/vue/client";
import { createPinia } from "pinia";
import { createApp } from "vue";
import { createI18n } from "vue-i18n";
import { createRouter, createWebHashHistory, createWebHistory } from "vue-router";
import App from "./App.vue";
import Birds from "./Birds.vue";
import Missing from "./Missing.vue";

const hashbang = location.pathname.endsWith("/hashbang");
const router = createRouter({
  history: hashbang ? createWebHashHistory("/vue3/hashbang#!") : createWebHistory("/vue3/"),
  routes: [
    { path: "/birds", component: Birds },
    { path: "/birds/:id", component: () => import("./Bird.vue"), props: true },
    { path: "/words", component: () => import("./Words.vue") },
    { path: "/moving", component: () => import("./Moving.vue") },
    { path: "/form", component: () => import("./Form.vue") },
    { path: "/:rest(.*)*", component: Missing },
  ],
});
router.beforeEach(() => new Promise((resolve) => setTimeout(resolve, 30)));

createApp(App)
  .use(createPinia()).use(router).use(createHead()).use(createI18n({ locale: "none", messages: {} }))
  .mount("#app");
