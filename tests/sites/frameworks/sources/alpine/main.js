import intersect from "@alpinejs/intersect";
import Alpine from "alpinejs";

const load = async (path) => (await fetch(path)).json();

Alpine.plugin(intersect);
Alpine.store("birds", {
  all: [],
  get large() { return this.all.filter(({ span }) => span > 100).length; },
  async init() { this.all = await load("/api/birds"); },
});
Alpine.data("page", () => ({
  open: false,
  name: "",
  large: false,
  places: null,
  seen: "waiting to be seen",
  async init() {
    this.$watch("name", async () => {
      this.places = await load("/api/birds/3/places");
      document.title = this.name;
    });
    setTimeout(() => { this.open = true; }, 100);
    const { name, span } = await load("/api/birds/3");
    this.name = name;
    this.large = span > 90;
  },
}));
Alpine.start();
