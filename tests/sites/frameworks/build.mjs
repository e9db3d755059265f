// Builds sources/<name>/ into built/<name>/, minified, with the licences of all that went in.
// Run it with `make frameworks`, or for some of them with `node build.mjs <name> ...`.
import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { execFileSync } from "node:child_process";
import { fileURLToPath, pathToFileURL } from "node:url";
import { ConsoleLogger, LogLevel, NodeJSFileSystem } from "@angular/compiler-cli";
import { createEs2015LinkerPlugin } from "@angular/compiler-cli/linker/babel";
import { transformAsync } from "@babel/core";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import react from "@vitejs/plugin-react";
import vue from "@vitejs/plugin-vue";
import { build } from "vite";
import solid from "vite-plugin-solid";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

// Angular's packages are published half compiled; its linker does the rest.
const angular = () => {
  const linker = createEs2015LinkerPlugin({
    fileSystem: new NodeJSFileSystem(), logger: new ConsoleLogger(LogLevel.warn), linkerJitMode: false,
  });
  return {
    name: "angular",
    buildStart: () => execFileSync(here("node_modules/.bin/ngc"), ["-p", here("sources/angular")], { stdio: "inherit" }),
    transform: {
      filter: { id: /@angular.*\.mjs$/ },
      handler: async (code, filename) => {
        const { code: linked } = await transformAsync(code, { filename, plugins: [linker], configFile: false, compact: true });
        return { code: linked, map: null };
      },
    },
    closeBundle: () => rm(here("sources/angular/compiled"), { recursive: true, force: true }),
  };
};

// The document with the HTML that React makes of the application on a server, as a stream in pieces.
const renderedOnTheServer = async (name, outDir) => {
  const server = here(`built/${name}-server`);
  await build({
    ...shared(name), plugins: [react()], ssr: { noExternal: true },
    build: { ssr: "server.jsx", outDir: server, emptyOutDir: true, minify: false },
  });
  const { render } = await import(pathToFileURL(`${server}/server.js`));
  const index = `${outDir}/index.html`;
  await writeFile(index, (await readFile(index, "utf-8")).replace("<!--html-->", await render()));
  await rm(server, { recursive: true });
};

const react18 = {
  plugins: [react()],
  resolve: { alias: [
    { find: /^react(\/.*)?$/, replacement: here("node_modules/react-18") + "$1" },
    { find: /^react-dom(\/.*)?$/, replacement: here("node_modules/react-dom-18") + "$1" },
  ] },
};
const preact = { oxc: { jsx: { runtime: "automatic", importSource: "preact" } } };
const special = {
  angular: { plugins: [angular()], define: { ngDevMode: "false", ngI18nClosureMode: "false", ngJitMode: "false", ngServerMode: "false" } },
  preact,
  react18,
  react19: { plugins: [react()] },
  "react19-streamed": { plugins: [react()], after: renderedOnTheServer },
  solid: { plugins: [solid()] },
  svelte5: { plugins: [svelte({ configFile: false })] },
  vue3: { plugins: [vue()] },
};

const shared = (name) => ({
  root: here(`sources/${name}`), base: `/${name}/`, configFile: false, logLevel: "warn",
});

const names = process.argv.length > 2 ? process.argv.slice(2) : (await readdir(here("sources"))).sort();
for (const name of names) {
  const { after, ...own } = special[name] ?? {};
  const outDir = here(`built/${name}`);
  await build({
    ...shared(name), ...own,
    build: { outDir, emptyOutDir: true, license: { fileName: "LICENSES.txt" } },
  });
  await after?.(name, outDir);
  console.log(`built/${name}`);
}
