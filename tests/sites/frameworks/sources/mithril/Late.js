import m from "mithril";

export default {
  oncreate: ({ dom }) => { setTimeout(() => { dom.textContent = "Resolved late"; }, 500); },
  view: () => m("p", "waiting"),
};
