// Vue 2, templates compiled in the browser: Vue Router 3 with its #! made of #, Vuex 3, transitions.
import Vue from "vue-2/dist/vue.esm.js";
import VueRouter from "vue-router-3";
import Vuex from "vuex-3";

Vue.use(VueRouter);
Vue.use(Vuex);
const load = async (path) => (await fetch(path)).json();

const store = new Vuex.Store({
  state: { birds: [] },
  getters: { large: ({ birds }) => birds.filter(({ span }) => span > 100).length },
  mutations: { found(state, birds) { state.birds = birds; } },
  actions: { async load({ commit }) { commit("found", await load("/api/birds")); } },
});

const Birds = {
  created() { this.$store.dispatch("load"); },
  watch: { "$store.state.birds"(birds) { document.title = `${birds.length} birds`; } },
  template: `<div><h1>Large ones: {{ $store.getters.large }}</h1>
    <transition-group name="fade" tag="ul">
      <li v-for="bird in $store.state.birds" :key="bird.id"><router-link :to="'/!/birds/' + bird.id">{{ bird.name }}</router-link></li>
    </transition-group></div>`,
};
const Bird = {
  data: () => ({ bird: null, places: [] }),
  async beforeRouteEnter({ params: { id } }, from, next) {
    const bird = await load(`/api/birds/${id}`);
    next((view) => { view.bird = bird; });
  },
  async mounted() { this.places = await load(`/api/birds/${this.$route.params.id}/places`); },
  template: `<transition name="fade" mode="out-in" appear>
    <div v-if="bird" key="bird"><h1>{{ bird.name }}</h1><p>{{ places.join(", ") }}</p></div>
    <p v-else key="none">Loading</p></transition>`,
};
const style = document.createElement("style");
style.textContent = ".fade-enter-active, .fade-leave-active { transition: opacity .4s } .fade-enter, .fade-leave-to { opacity: 0 }";
document.head.append(style);

new Vue({
  el: "#app",
  store,
  router: new VueRouter({ routes: [{ path: "/!/birds", component: Birds }, { path: "/!/birds/:id", component: Bird }] }),
  template: "<div><nav>The menu</nav><router-view></router-view></div>",
});
