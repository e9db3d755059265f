// A tool library on AngularJS 1.8, the way such applications were written: routes under "#!",
// templates and JSON by $http, and a head that is bound to the root scope.
(function () {
  "use strict";

  angular
    .module("library", ["ngRoute", "ngAnimate", "ngSanitize"])
    .config(routes)
    .run(pageInHead)
    .factory("tools", tools)
    .filter("deposit", deposit)
    .directive("starRating", starRating)
    .directive("openingHours", openingHours)
    .controller("ListController", ListController)
    .controller("ItemController", ItemController)
    .controller("AboutController", AboutController);

  routes.$inject = ["$locationProvider", "$routeProvider"];
  function routes($locationProvider, $routeProvider) {
    $locationProvider.hashPrefix("!");
    $routeProvider
      .when("/items", {
        templateUrl: "views/list.html",
        controller: "ListController",
        controllerAs: "list",
        reloadOnSearch: false,
        section: "items",
      })
      .when("/items/:id", {
        templateUrl: "views/item.html",
        controller: "ItemController",
        controllerAs: "view",
        resolve: {
          item: ["$route", "tools", function ($route, tools) {
            return tools.one($route.current.params.id);
          }],
        },
        section: "items",
      })
      .when("/about", {
        templateUrl: "views/about.html",
        controller: "AboutController",
        controllerAs: "about",
        section: "about",
      })
      .otherwise({ redirectTo: "/items" });
  }

  pageInHead.$inject = ["$rootScope", "$location"];
  function pageInHead($rootScope, $location) {
    var page = $rootScope.page = { title: "Welcome", loading: true };
    $rootScope.$on("$routeChangeStart", function () {
      page.loading = true;
    });
    $rootScope.$on("$routeChangeSuccess", function (event, current) {
      page.loading = false;
      page.section = current.section;
      page.canonical = $location.absUrl();
    });
    $rootScope.$on("$routeChangeError", function (event, current, previous, answer) {
      page.loading = false;
      page.section = current.section;
      page.status = answer.status;
      page.title = "No such tool";
      page.description = "";
      page.problem = answer.data.error;
    });
  }

  tools.$inject = ["$http"];
  function tools($http) {
    function content(answer) {
      return answer.data;
    }
    return {
      all: function () { return $http.get("api/items", { cache: true }).then(content); },
      one: function (id) { return $http.get("api/items/" + encodeURIComponent(id)).then(content); },
      stock: function (id) { return $http.get("api/stock", { params: { id: id } }).then(content); },
    };
  }

  deposit.$inject = ["currencyFilter"];
  function deposit(currency) {
    return function (cents) {
      return cents ? currency(cents / 100, "€") + " deposit" : "no deposit";
    };
  }

  function starRating() {
    return {
      restrict: "E",
      scope: { value: "<" },
      templateUrl: "parts/star-rating.html",
      link: function (scope, element) {
        scope.$watch("value", function (value) {
          scope.stars = Array.from({ length: 5 }, function (_, index) { return index < value; });
          element.attr("aria-label", value + " of 5 stars");
        });
      },
    };
  }

  openingHours.$inject = ["$timeout"];
  function openingHours($timeout) {
    return {
      template: "<span>{{ hours }}</span>",
      link: function (scope) {
        scope.hours = "Opening hours are loading";
        $timeout(function () { scope.hours = "Open Tuesday to Saturday"; }, 1500);
      },
    };
  }

  ListController.$inject = ["$rootScope", "$location", "tools"];
  function ListController($rootScope, $location, tools) {
    var list = this;
    list.query = $location.search().q || "";
    list.order = $location.search().order || "name";
    $rootScope.page.title = list.query ? "Tools for “" + list.query + "”" : "All tools";
    $rootScope.page.description = "Tools to borrow.";
    tools.all().then(function (items) {
      list.items = items;
    });
  }

  ItemController.$inject = ["$rootScope", "$timeout", "tools", "item"];
  function ItemController($rootScope, $timeout, tools, item) {
    var view = this;
    view.item = item;
    $rootScope.page.title = item.name;
    $rootScope.page.description = item.summary;
    // The shelf is looked at late, as by the widgets of other companies.
    $timeout(800).then(function () {
      return tools.stock(item.id);
    }).then(function (stock) {
      view.stock = stock;
    });
  }

  AboutController.$inject = ["$rootScope", "$interval"];
  function AboutController($rootScope, $interval) {
    var about = this;
    $rootScope.page.title = "About us";
    $rootScope.page.description = "Who we are.";
    about.members = 0;
    $interval(function () { about.members += 41; }, 20, 10);
  }
})();
