// Knockout: asynchronous components, observables, computed and deferred updates, #! routes.
import ko from "knockout";

ko.options.deferUpdates = true;
const load = async (path) => (await fetch(path)).json();

ko.components.register("bird-list", {
  synchronous: false,
  viewModel: function Birds() {
    this.birds = ko.observableArray();
    this.large = ko.computed(() => this.birds().filter(({ span }) => span > 100).length);
    load("/api/birds").then(this.birds);
  },
  template: '<h1>Large ones: <span data-bind="text: large"></span></h1>' +
    '<ul data-bind="foreach: birds"><li data-bind="text: name"></li></ul>',
});
ko.components.register("one-bird", {
  viewModel: function Bird(id) {
    this.bird = ko.observable();
    this.places = ko.observableArray(["Loading places"]).extend({ rateLimit: 250 });
    load(`/api/birds/${id}`).then(this.bird);
    load(`/api/birds/${id}/places`).then(this.places);
  },
  template: '<p data-bind="ifnot: bird">Loading</p><!-- ko with: bird --><h1 data-bind="text: name"></h1>' +
    '<input data-bind="value: latin"><!-- /ko --><p data-bind="text: places().join(\', \')"></p>',
});

const [, id] = /^#!\/birds\/(\d+)$/.exec(location.hash) ?? [];
ko.applyBindings({ view: id ? "one-bird" : "bird-list", id }, document.getElementById("app"));
