// SPDX-License-Identifier: Apache-2.0
// Bundles src/main.js into one script, and writes beside it the hash by which a page's policy knows it.
//
//   node build.mjs [OUT]      writes report.js and report.js.hash to OUT, or here
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const out = process.argv[2] ?? ".";
const file = join(out, "report.js");
const text_of = (path) => readFileSync(join("node_modules", path), "utf8").trim();
const version_of = (name) => `${name} ${JSON.parse(text_of(`${name}/package.json`)).version}`;
const versions = ["echarts", "zrender", "tslib"].map(version_of).join(", ");

// What the licences of the libraries ask for; that of tslib stands in its source. Every page carries it.
const notice = `/*!
GNMR's charts, Apache License 2.0; made from gnmr/report/web with ${versions}.

${text_of("echarts/NOTICE")}
Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0

zrender: ${text_of("zrender/LICENSE")}

Parts of ECharts are of d3: ${text_of("echarts/licenses/LICENSE-d3")}
*/`;

await build({
  entryPoints: ["src/main.js"],
  outfile: file,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2020",
  charset: "ascii",
  legalComments: "inline",
  banner: { js: notice },
  logLevel: "warning",
});
// It will stand inside an element that these would end.
const script = readFileSync(file, "utf8").trim().replace(/<\/script/gi, "<\\/script").replace(/<!--/g, "<\\!--");
writeFileSync(file, script);
writeFileSync(`${file}.hash`, "sha256-" + createHash("sha256").update(script).digest("base64"));
