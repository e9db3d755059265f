// What sites use beside their framework, each in a part of its own: #!/<part>.
const parts = {
  anime: () => import("./anime.js"),
  d3: () => import("./d3.js"),
  lazysizes: () => import("./lazysizes.js"),
  worker: () => import("./worker.js"),
};

const app = document.getElementById("app");
const { show } = await parts[location.hash.replace("#!/", "")]();
app.textContent = "";
await show(app);
