// Unpacks the packaged Chromium with the libraries and fonts it needs: node unpack.mjs DIRECTORY

import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliDecompressSync } from "node:zlib";

const packed = new URL("node_modules/@sparticuz/chromium/bin/", import.meta.url);
const target = process.argv[2];
const read = (name) => brotliDecompressSync(readFileSync(new URL(name, packed)));

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
if (process.arch !== "x64") {
  console.log("The packaged Chromium is for x86-64: an installed one is used.");
  process.exit();
}
writeFileSync(join(target, "chromium"), read("chromium.br"), { mode: 0o755 });
for (const name of ["al2023", "swiftshader", "fonts"]) {
  execFileSync("tar", ["-x", "--no-same-owner", "-C", target], { input: read(`${name}.tar.br`) });
}
