// SPDX-License-Identifier: Apache-2.0
// Opens sample reports in a browser, wide and narrow, light and dark, and tells what is wrong with them.
//
//   node check_pages.mjs CHROMIUM SAMPLE_PROGRAM FOLDER [PAGE...]
//
// Pages and pictures of them stay in FOLDER. With names of pages, only these are checked and none is made anew.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Chromium } from "./chromium.mjs";

const [program, sample_program, folder, ...given] = process.argv.slice(2);
const checks = readFileSync(join(dirname(fileURLToPath(import.meta.url)), "page_checks.js"), "utf8");
const names = ["run", "run_plain", "suite", "suite_plain", "odd", "odd_plain", "bare", "bare_plain", "sweep"];
const widths = [1280, 390];
const themes = ["light", "dark"];

if (given.length === 0) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  execFileSync(sample_program, [folder], { stdio: "inherit" });
}
const pages = given.length > 0 ? given : names.map((name) => join(folder, `${name}.html`));

const problems = [];
let place = "";
const wrong = (what) => problems.push(`${place}: ${what}`);
const browser = await Chromium.start(program);
browser.on("Runtime.exceptionThrown", ({ exceptionDetails: details }) =>
  wrong(`exception: ${details.exception?.description ?? details.text}`),
);
browser.on("Log.entryAdded", ({ entry }) => wrong(`log: ${entry.text}`));
browser.on("Runtime.consoleAPICalled", ({ type, args }) => {
  if (["error", "warning", "assert"].includes(type))
    wrong(`console: ${args.map((each) => each.value ?? each.description).join(" ")}`);
});
let page_address = "";
browser.on("Network.requestWillBeSent", ({ request }) => {
  if (request.url !== page_address && !request.url.startsWith("data:")) wrong(`a request: ${request.url}`);
});
browser.on("Network.webSocketCreated", ({ url }) => wrong(`a request: ${url}`));

// Until the page has seen what was done to it, has waited for as long as it waits, and has drawn the result.
const settle = () =>
  browser.evaluate(`(async () => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  await frame();
  await frame();
  await new Promise((resolve) => setTimeout(resolve, 150));
  await frame();
  await frame();
})()`);

async function look(name) {
  await settle();
  for (const problem of await browser.evaluate(checks)) wrong(problem);
  const { data } = await browser.call("Page.captureScreenshot", { captureBeyondViewport: true });
  writeFileSync(join(folder, `${name}.png`), Buffer.from(data, "base64"));
}

// The middle of the first shown element that `selector` finds, after it was brought into view.
async function hover(selector) {
  const point = await browser.evaluate(`(() => {
    const element = [...document.querySelectorAll(${JSON.stringify(selector)})].find((each) => each.checkVisibility());
    if (!element) return null;
    element.scrollIntoView({ block: "center" });
    const box = element.getBoundingClientRect();
    return { x: box.left + box.width * 0.6, y: box.top + box.height * 0.45 };
  })()`);
  if (point) await browser.call("Input.dispatchMouseEvent", { type: "mouseMoved", ...point });
  await settle();
  return point !== null;
}

// How many outlines of one colour of the style sheet, wide enough to see, the first shown chart of a kind has.
const outlined_in = (chart, colour) =>
  browser.evaluate(`(() => {
  const element = [...document.querySelectorAll('[data-chart="${chart}"]')].find((each) => each.checkVisibility());
  const wanted = getComputedStyle(document.documentElement).getPropertyValue("--${colour}").trim();
  return [...(element?.querySelectorAll("svg path, svg rect") ?? [])].filter((shape) =>
    shape.getAttribute("stroke") === wanted && shape.getBoundingClientRect().width > 100).length;
})()`);

// What moves: tips, the choice of a run, the switches of a legend, the shared zoom.
async function use_page(name) {
  if (name === "sweep") {
    await hover('[data-chart="sweep"]');
    const tip = await browser.evaluate(
      `[...document.querySelectorAll('[data-chart="sweep"] > div')].map((each) => each.textContent).join("|")`,
    );
    if (!/noise_factor 4: [0-9]/.test(tip)) wrong(`the sweep has no tip but "${tip}"`);
    return;
  }
  if (await hover('[data-chart="heat"]')) {
    const tip = await browser.evaluate(`document.querySelector(".tip:not([hidden])")?.textContent ?? ""`);
    if (!/step/.test(tip)) wrong(`the heat map has no tip but "${tip}"`);
  }
  if (await hover('[data-chart="errors"]')) {
    const tip = await browser.evaluate(
      `document.querySelector('[data-chart="errors"] .tip:not([hidden])')?.textContent ?? ""`,
    );
    if (!/error about|not measured/.test(tip)) wrong(`the map of errors has no tip but "${tip}"`);
    const outlines = await outlined_in("errors", "chronic");
    if (outlines !== 1) wrong(`the map of errors outlines ${outlines} chronic units, expected 1`);
    if ((await outlined_in("heat", "chronic")) !== 0) wrong("the map of ratios outlines chronic units");
  } else if (name === "run") {
    wrong("there is no map of errors");
  }
  if (await hover('[data-chart="loss"]')) {
    const tips = await browser.evaluate(
      `[...document.querySelectorAll('[data-chart="loss"] > div')].map((each) => each.textContent).join("|")`,
    );
    if (!/training: [0-9]/.test(tips)) wrong(`the loss has no tip but "${tips}"`);
  }
  const numbers = `[...document.querySelectorAll('[data-chart="norm"] text')].map((each) => each.textContent).join()`;
  const before_zoom = await browser.evaluate(numbers);
  const loss = await browser.evaluate(`(() => {
    const charts = [...document.querySelectorAll('[data-chart="loss"]')];
    const box = charts.find((each) => each.checkVisibility()).getBoundingClientRect();
    return { right: box.right - 18, bottom: box.bottom - 16, width: box.width };
  })()`);
  const drag = (type, x) =>
    browser.call("Input.dispatchMouseEvent", { type, x, y: loss.bottom, button: "left", buttons: 1, clickCount: 1 });
  await drag("mouseMoved", loss.right);
  await drag("mousePressed", loss.right);
  for (let i = 1; i <= 5; i++) await drag("mouseMoved", loss.right - (i * loss.width) / 10);
  await drag("mouseReleased", loss.right - loss.width / 2);
  await settle();
  if ((await browser.evaluate(numbers)) === before_zoom) wrong("zooming the loss does not zoom the gradient norm");
  await look(`${name}_zoomed`);
  const choices = await browser.evaluate(`document.querySelectorAll("#run-choice option").length`);
  for (let i = 0; i < choices; i++) {
    await browser.evaluate(`(() => {
      const choice = document.getElementById("run-choice");
      choice.value = "${i}";
      choice.dispatchEvent(new Event("change"));
    })()`);
    const shown = await browser.evaluate(
      `[...document.querySelectorAll("[data-panel]")]
        .filter((each) => each.checkVisibility())
        .map((each) => each.dataset.panel)
        .join()`,
    );
    if (shown !== String(i)) wrong(`run ${i} was chosen and ${shown} is shown`);
    await look(`${name}_run${i}`);
  }
  const lines = `document.querySelectorAll('[data-chart="arms-train"] svg path').length`;
  if (choices > 0) {
    const before = await browser.evaluate(lines);
    await browser.evaluate(`document.querySelector(".legend button").click()`);
    await settle();
    if ((await browser.evaluate(lines)) >= before) wrong("the switch of an arm hides nothing");
  }
}

for (const page of pages) {
  const name = page.replace(/^.*\//, "").replace(/\.html$/, "");
  const plain = name.endsWith("_plain");
  if (readFileSync(page).length > 4e6) problems.push(`${name}: the file is larger than 4 MB`);
  for (const width of widths) {
    for (const theme of themes) {
      place = `${name} at ${width}, ${theme}`;
      await browser.call("Emulation.setDeviceMetricsOverride", {
        width,
        height: 900,
        deviceScaleFactor: 1,
        mobile: false,
      });
      await browser.call("Emulation.setEmulatedMedia", {
        features: [{ name: "prefers-color-scheme", value: theme }],
      });
      page_address = pathToFileURL(page).href;
      await browser.open(page_address);
      if (!plain && (await browser.evaluate("document.documentElement.dataset.drawn")) !== "yes")
        wrong("the script did not run to its end");
      await look(`${name}_${width}_${theme}`);
      const harm = await browser.evaluate(
        `/^harm/.test(document.title) || document.querySelector("[onmouseover]") !== null`,
      );
      if (harm) wrong("text from a file was read as HTML");
    }
  }
  // A window that changes, and a theme that changes, after the page was drawn.
  place = `${name}, wide again`;
  await browser.call("Emulation.setDeviceMetricsOverride", {
    width: 1280,
    height: 900,
    deviceScaleFactor: 1,
    mobile: false,
  });
  await browser.call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "light" }] });
  await look(`${name}_again`);
  if (plain) continue;
  place = `${name}, in use`;
  await use_page(name);
  // The same page without its script is what --plain gives.
  place = `${name}, without script`;
  await browser.call("Emulation.setScriptExecutionDisabled", { value: true });
  await browser.open(page_address);
  const shown = (selector) =>
    browser.evaluate(
      `[...document.querySelectorAll(${JSON.stringify(selector)})].filter((each) => each.checkVisibility()).length`,
    );
  if ((await shown(".figure > .words")) === 0 || (await shown(".words.remarks")) === 0)
    wrong("no words in the place of charts");
  if ((await shown(".chart, .choice")) > 0) wrong("what needs the script is shown");
  if ((await shown("[data-panel]")) !== (await browser.evaluate(`document.querySelectorAll("[data-panel]").length`)))
    wrong("runs are hidden");
  const { data } = await browser.call("Page.captureScreenshot", { captureBeyondViewport: true });
  writeFileSync(join(folder, `${name}_no_script.png`), Buffer.from(data, "base64"));
  await browser.call("Emulation.setScriptExecutionDisabled", { value: false });
}
await browser.stop();

if (problems.length > 0) {
  console.log(problems.slice(0, 60).join("\n"));
  console.log(`${problems.length} problems in ${pages.length} pages`);
  process.exit(1);
}
console.log(`${pages.length} pages are as they should be`);
