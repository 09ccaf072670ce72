import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

/** Every browser this page runs in reads woff2; KaTeX also brings two older forms of each font. */
const woff2Only: Plugin = {
  name: "woff2-only",
  enforce: "pre",
  transform(code, id) {
    if (!id.includes("katex") || !id.endsWith(".css")) return null;
    return code.replace(/,\s*url\([^)]*\.(?:woff|ttf)\)\s*format\("[a-z]+"\)/g, "");
  },
};

export default defineConfig({
  plugins: [react(), woff2Only],
  base: "/",
  build: {
    outDir: "../gateway/page",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  // `npm run dev` beside a running gateway. The gateway sees its own origin.
  server: {
    proxy: {
      "/metrics": "http://127.0.0.1:8765",
      "/readyz": "http://127.0.0.1:8765",
      "/api": {
        target: "http://127.0.0.1:8765",
        changeOrigin: true,
        headers: { origin: "http://127.0.0.1:8765" },
      },
      "/ws": {
        target: "ws://127.0.0.1:8765",
        ws: true,
        changeOrigin: true,
        headers: { origin: "http://127.0.0.1:8765" },
      },
    },
  },
  test: { include: ["src/**/*.test.{ts,tsx}"] },
});
