// SPDX-License-Identifier: Apache-2.0
// Draws the charts of a page. All words, tables and legends are in the page already; its data is in #report-data.
import { arm_curves_chart, gaps_chart } from "./suite_charts.js";
import { error_map_chart, heat_map_chart } from "./heat_map.js";
import { loss_chart, norm_chart, timeline_chart, use_chart } from "./run_charts.js";
import { make_chart } from "./library.js";
import { make_legend_switch } from "./legend.js";
import { share_zoom } from "./zoom.js";
import { sweep_chart } from "./sweep_chart.js";

const data = JSON.parse(document.getElementById("report-data").textContent);

const run_charts = {
  loss: loss_chart, norm: norm_chart, heat: heat_map_chart, errors: error_map_chart, timeline: timeline_chart,
  use: use_chart,
};
const other_charts = {
  "arms-train": (chart) => arm_curves_chart(chart, data, "train"),
  "arms-high": (chart) => arm_curves_chart(chart, data, "high"),
  "arms-low": (chart) => arm_curves_chart(chart, data, "low"),
  "arms-use": (chart) => arm_curves_chart(chart, data, "use"),
  gaps: (chart) => gaps_chart(chart, data),
  sweep: (chart, index) => sweep_chart(chart, data.charts[index]),
};

const drawn = new Map(); // element -> its chart and how to draw it

function draw_visible() {
  for (const element of document.querySelectorAll(".chart")) {
    if (drawn.has(element) || element.closest("[hidden]")) continue;
    const name = element.dataset.chart;
    const index = Number(element.dataset.index);
    const chart = make_chart(element);
    const draw =
      name in run_charts ? () => run_charts[name](chart, data.runs[index]) : () => other_charts[name](chart, index);
    drawn.set(element, { chart, draw });
    draw();
    if (name in run_charts) share_zoom(chart, `run ${index}`);
    if (name.startsWith("arms-")) {
      make_legend_switch(element, chart);
      share_zoom(chart, "arms");
    }
  }
}

// What is hidden has no size to be drawn in: it is forgotten, and drawn when it is shown again.
function redraw() {
  for (const [element, { chart, draw }] of drawn) {
    if (element.closest("[hidden]")) {
      chart.dispose();
      drawn.delete(element);
      continue;
    }
    chart.resize();
    chart.clear();
    draw();
  }
}

const choice = document.getElementById("run-choice");
if (choice) {
  const show_chosen = () => {
    for (const panel of document.querySelectorAll("[data-panel]")) panel.hidden = panel.dataset.panel !== choice.value;
    draw_visible();
  };
  choice.addEventListener("change", show_chosen);
  show_chosen(); // a browser may have kept an earlier choice
}

draw_visible();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
// Names and margins depend on the width, so a new width is a new drawing.
let width = document.documentElement.clientWidth;
let waiting = 0;
addEventListener("resize", () => {
  if (document.documentElement.clientWidth === width) return;
  width = document.documentElement.clientWidth;
  clearTimeout(waiting);
  waiting = setTimeout(redraw, 60);
});
document.documentElement.dataset.drawn = "yes";
