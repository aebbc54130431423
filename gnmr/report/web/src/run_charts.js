// SPDX-License-Identifier: Apache-2.0
// Charts of one run: loss, gradient norm, timeline of recoveries, use of the budget.
import {
  clipped, colour, common_option, name_room, number_text, plot_height, points_of, row_axis, step_axis, tip_content,
  value_axis,
} from "./library.js";

/** Crosses at the top of the plot for values that were not finite. */
function bad_marks(curve, name, tint) {
  return {
    type: "custom",
    name,
    data: curve.bad.map((step) => [step]),
    encode: { x: 0 },
    clip: true,
    renderItem: (params, api) => {
      const [x] = api.coord([api.value(0), 0]);
      const top = params.coordSys.y + 8;
      return {
        type: "path",
        shape: { pathData: "M-4 -4L4 4M4 -4L-4 4" },
        x, y: top,
        style: { stroke: tint, fill: "none", lineWidth: 2 },
      };
    },
    tooltip: { formatter: (item) => tip_content(`step ${item.value[0]}`, [`${name}: not finite`]) },
  };
}

function lines_tip(items) {
  const lines = items.filter((item) => item.value[1] !== undefined)
    .map((item) => `${item.seriesName}: ${number_text(item.value[1])}`);
  return tip_content(`step ${items[0].value[0]}`, lines);
}

function line(name, curve, tint, more = {}) {
  return {
    type: "line", name, data: points_of(curve), showSymbol: false, color: tint,
    lineStyle: { color: tint, width: 2 }, emphasis: { disabled: true }, ...more,
  };
}

/** Training loss, and the losses on held-out data. */
export function loss_chart(chart, run) {
  const option = common_option({ zoom: true });
  option.tooltip.formatter = lines_tip;
  const held_out = { showSymbol: true, symbol: "circle", symbolSize: 7 };
  const series = [line("training", run.train, colour("c1"), { lineStyle: { color: colour("c1"), width: 1.3 } })];
  series.push(line("held-out, high precision", run.high, colour("c3"), held_out));
  series.push(line("held-out, low path", run.low, colour("c2"), {
    ...held_out, lineStyle: { color: colour("c2"), width: 2, type: "dashed" },
  }));
  for (const [curve, tint] of [[run.train, "c1"], [run.high, "c3"], [run.low, "c2"]]) {
    if (curve.bad.length > 0) series.push(bad_marks(curve, "loss", colour(tint)));
  }
  const values = [run.train, run.high, run.low].flatMap((curve) => curve.y);
  const low = Math.min(...values);
  const high = Math.max(...values);
  const limits = {};
  if (run.ceiling !== null && high > run.ceiling) {
    limits.max = Number((run.ceiling + 0.05 * (run.ceiling - low)).toPrecision(3));
  }
  chart.setOption({
    ...option, xAxis: step_axis(run.first, run.last, chart), yAxis: value_axis("loss (nats/token)", limits), series,
  });
}

/** The gradient norm on a logarithmic axis; skipped updates are marked. */
export function norm_chart(chart, run) {
  const option = common_option();
  option.tooltip.formatter = lines_tip;
  const tint = colour("c1");
  const series = [line("gradient norm", run.norm, tint, {
    lineStyle: { color: tint, width: 1.3 },
    markLine: {
      silent: true, symbol: "none", label: { show: false },
      lineStyle: { color: colour("c2"), type: "dashed", width: 1.3 },
      data: run.skipped.map((step) => ({ xAxis: step })),
    },
  })];
  if (run.norm.bad.length > 0) series.push(bad_marks(run.norm, "gradient norm", tint));
  const low = Math.min(...run.norm.y);
  const high = Math.max(...run.norm.y);
  const limits = run.norm.y.length === 0 ? {} : { min: round_down(low / 1.1), max: round_up(high * 1.1) };
  chart.setOption({
    ...option,
    xAxis: step_axis(run.first, run.last, chart),
    yAxis: value_axis("gradient norm", { type: "log", scale: false, minorSplitLine: { show: false }, ...limits }),
    series,
  });
}

// A logarithmic axis begins and ends at 1, 2 or 5 times a power of 10.
function round_down(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [5, 2, 1].map((factor) => factor * power).find((candidate) => candidate <= value);
}
function round_up(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= value);
}

const ends = ["released", "released as bad as before (futile)", "still in recovery at the end"];

/** Which unit was in recovery when. */
export function timeline_chart(chart, run) {
  const { units, bars, denials } = run.timeline;
  const room = name_room(chart, units);
  const option = common_option({ left: room.margin, tooltip: "item" });
  const tints = [colour("recovery"), colour("futile"), colour("open")];
  const bar = {
    type: "custom",
    data: bars,
    encode: { x: [1, 2], y: 0 },
    clip: true,
    renderItem: (params, api) => {
      const [left, middle] = api.coord([api.value(1) - 0.5, api.value(0)]);
      const [right] = api.coord([api.value(2) + 0.5, api.value(0)]);
      const height = Math.min(14, api.size([0, 1])[1] * 0.66);
      const shape = clipped(
        { x: left, y: middle - height / 2, width: Math.max(2, right - left), height }, params.coordSys);
      return shape && { type: "rect", shape: { ...shape, r: 2 }, style: { fill: tints[api.value(3)] } };
    },
    tooltip: {
      formatter: ({ value }) => tip_content(units[value[0]], [`steps ${value[1]} to ${value[2]}`, ends[value[3]]]),
    },
  };
  const denied = {
    type: "scatter",
    data: denials.map(([row, step]) => [step, row]),
    symbolSize: 8,
    itemStyle: { color: colour("denied") },
    tooltip: {
      formatter: ({ value }) => tip_content(units[value[1]], [`step ${value[0]}`, "denied: no room in the budget"]),
    },
  };
  chart.setOption({
    ...option, xAxis: step_axis(run.first, run.last, chart), yAxis: row_axis(room, plot_height(chart, option)),
    series: [bar, denied],
  });
}

/** Units in recovery over steps, under the budget. */
export function use_chart(chart, run) {
  const option = common_option();
  option.tooltip.formatter = (items) =>
    tip_content(`step ${items[0].value[0]}`, [`units in recovery: ${items[0].value[1]}`]);
  const tint = colour("c3");
  const most = Math.max(run.budget ?? 0, ...run.use.y, 1);
  const budget = run.budget === null ? undefined : {
    silent: true, symbol: "none",
    label: {
      formatter: `budget: ${run.budget}`, position: "insideEndTop", color: colour("soft"), fontSize: 12,
      textBorderWidth: 0,
    },
    lineStyle: { color: colour("c2"), type: "dashed", width: 1.6 },
    data: [{ yAxis: run.budget }],
  };
  chart.setOption({
    ...option,
    xAxis: step_axis(run.first, run.last, chart),
    yAxis: value_axis("units in recovery", { min: 0, max: Math.ceil(most * 1.25), minInterval: 1, splitNumber: 4 }),
    series: [line("units in recovery", run.use, tint, {
      step: "end", areaStyle: { color: tint, opacity: 0.3 }, lineStyle: { color: tint, width: 1.5 }, markLine: budget,
    })],
  });
}
