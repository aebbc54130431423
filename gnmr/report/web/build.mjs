// SPDX-License-Identifier: Apache-2.0
// Bundles src/main.js into one script, and writes beside it the hash by which a page's policy knows it.
//
//   node build.mjs OUT      writes OUT/report.js and OUT/report.js.hash
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const out = process.argv[2] ?? "dist";
const file = join(out, "report.js");
await build({
  entryPoints: ["src/main.js"],
  outfile: file,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2020",
  charset: "ascii",
  legalComments: "inline",
  logLevel: "warning",
});
// It will stand inside an element that these would end.
const script = readFileSync(file, "utf8").trim().replace(/<\/script/gi, "<\\/script").replace(/<!--/g, "<\\!--");
writeFileSync(file, script);
writeFileSync(`${file}.hash`, "sha256-" + createHash("sha256").update(script).digest("base64"));
