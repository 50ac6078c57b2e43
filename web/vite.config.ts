import { copyFileSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig, type Plugin } from "vite";

const head = process.env.RUNWATCH_HEAD_URL ?? "http://127.0.0.1:8090";

/** The flame graph viewer lies beside the page, as it was published, and is no part of its bundle. */
function speedscope(): Plugin {
  const from = "node_modules/speedscope";
  const wanted = /^(index\.html|speedscope-.*\.(js|css)|.*\.(woff2|wasm)|favicon-.*\.(js|png|ico)|.*LICENSE.*)$/;
  return {
    name: "speedscope-viewer",
    apply: "build",
    writeBundle({ dir }) {
      const to = join(dir ?? ".", "viewers", "speedscope");
      mkdirSync(to, { recursive: true });
      const release = join(from, "dist", "release");
      for (const name of readdirSync(release).filter((one) => wanted.test(one))) {
        copyFileSync(join(release, name), join(to, name));
      }
      copyFileSync(join(from, "LICENSE"), join(to, "LICENSE.md"));
    },
  };
}

export default defineConfig({
  // Relative addresses: the page works under any path that a proxy gives it.
  base: "./",
  plugins: [svelte(), speedscope()],
  build: {
    outDir: "../src/runwatch/head/static/page",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    // An asset inlined as data: would need a wider Content-Security-Policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/api": { target: head, changeOrigin: true } } },
});
