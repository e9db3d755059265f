// Backbone with jQuery and Underscore: #! routes, collections, templates, effects.
import Backbone from "backbone";
import $ from "jquery";
import _ from "underscore";

Backbone.$ = $;
const Bird = Backbone.Model.extend({ urlRoot: "/api/birds" });
const Birds = Backbone.Collection.extend({ model: Bird, url: "/api/birds" });

const ListView = Backbone.View.extend({
  tagName: "section",
  template: _.template("<h1>Birds: <%= birds.length %></h1><ul><% _.each(birds, ({ id, name }) => { %>" +
    '<li><a href="#!birds/<%= id %>"><%- name %></a></li><% }) %></ul>'),
  initialize() { this.listenTo(this.collection, "sync", this.render); },
  render() {
    this.$el.hide().html(this.template({ birds: this.collection.toJSON() })).fadeIn(600);
    document.title = "All birds";
    return this;
  },
});

const BirdView = Backbone.View.extend({
  template: _.template("<h1><%- name %></h1><p><%= places.join(', ') %></p><div class=details><em><%- latin %></em></div>"),
  initialize() {
    const { model } = this;
    $.when(model.fetch(), $.getJSON(`/api/birds/${model.id}/places`)).then((_bird, [places]) => {
      this.$el.html(this.template({ ...model.toJSON(), places }));
      this.$(".details").slideUp(0).delay(200).slideDown(400, () => $("<b>It has slid down</b>").appendTo(this.el));
    }, ({ responseJSON }) => {
      $("head").append('<meta name="prerender-status-code" content="404">');
      this.$el.text(`Unknown: ${responseJSON.error}`);
    });
  },
});

const Router = Backbone.Router.extend({
  routes: { "!birds": "birds", "!birds/:id": "bird", "*rest": "missing" },
  show(view) { $("#app").empty().append(view.el); },
  birds() {
    const collection = new Birds();
    this.show(new ListView({ collection }));
    collection.fetch();
  },
  bird(id) { this.show(new BirdView({ model: new Bird({ id }) })); },
  missing() { $("#app").html("<h1>There is no such page</h1>"); },
});

$(() => {
  new Router();
  Backbone.history.start();
});
