import { defineStore } from "pinia";

export const useBirds = defineStore("birds", {
  state: () => ({ birds: [] }),
  getters: { large: ({ birds }) => birds.filter(({ span }) => span > 100).length },
  actions: {
    async load() { this.birds = await (await fetch("/api/birds")).json(); },
  },
});
