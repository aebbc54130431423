// SPDX-License-Identifier: Apache-2.0
// Charts of a suite: curves of all arms, and the gap that each arm closes.
import {
  colour, common_option, is_narrow, line_colour, line_dash, lower_axis, name_room, number_text, plot_height, points_of,
  row_axis, step_axis, tip_content, value_axis,
} from "./library.js";

const names = {
  train: "loss (nats/token)", high: "loss (nats/token)", low: "loss (nats/token)", use: "budget in use (%)",
};

/** One quantity of all arms: seeds thin, their mean thick. */
export function arm_curves_chart(chart, data, quantity) {
  const option = common_option({ zoom: true });
  const series = [];
  data.arms.forEach((arm, index) => {
    const tint = line_colour(index);
    const of_arm = {
      type: "line", name: arm.label, showSymbol: false, color: tint, step: quantity === "use" ? "middle" : false,
      emphasis: { disabled: true },
    };
    for (const { curve } of arm[quantity].seeds) {
      series.push({
        ...of_arm, data: points_of(curve), silent: true, lineStyle: { color: tint, width: 1, opacity: 0.4 },
        tooltip: { show: false },
      });
    }
    series.push({
      ...of_arm, id: `mean ${index}`, data: points_of(arm[quantity].mean),
      lineStyle: { color: tint, width: 2.6, type: line_dash(index) }, z: 3,
    });
  });
  option.tooltip.formatter = (items) => {
    const means = items.filter((item) => item.seriesId.startsWith("mean "));
    return tip_content(
      `step ${number_text(items[0].value[0])}`,
      means.map((item) => `${item.seriesName}: ${number_text(item.value[1])}`));
  };
  const limits =
    quantity === "use" ? { min: 0, max: (range) => Math.max(110, range.max) } : loss_limits(data, quantity);
  chart.setOption({
    ...option,
    legend: { show: false, data: [...new Set(data.arms.map((arm) => arm.label))] },
    xAxis: step_axis(data.first, data.last, chart),
    yAxis: value_axis(names[quantity], limits),
    series,
  });
}

// A run that diverged must not squeeze all others into a line.
function loss_limits(data, quantity) {
  const ceiling = data.ceilings[quantity];
  const values = data.arms.flatMap((arm) => arm[quantity].seeds.flatMap(({ curve }) => curve.y));
  if (ceiling === null || Math.max(...values) <= ceiling) return {};
  return { max: Number((ceiling + 0.05 * (ceiling - Math.min(...values))).toPrecision(3)) };
}

/** The gap that each arm closes, with its interval. */
export function gaps_chart(chart, data) {
  const labels = data.gaps.map((gap) => data.arms[gap.arm].label);
  const room = name_room(chart, labels);
  const option = common_option({ left: room.margin, tooltip: "item" });
  option.dataZoom = [];
  const interval = {
    type: "custom",
    data: data.gaps.map((gap, row) => [gap.low, gap.high, gap.value, row]),
    encode: { x: [0, 1, 2], y: 3 },
    renderItem: (_, api) => {
      const row = api.value(3);
      const gap = data.gaps[row];
      const tint = line_colour(gap.arm);
      const [left, y] = api.coord([api.value(0), row]);
      const [right] = api.coord([api.value(1), row]);
      const [middle] = api.coord([api.value(2), row]);
      const stroke = { stroke: tint, lineWidth: 2.6 };
      return {
        type: "group",
        children: [
          { type: "line", shape: { x1: left, y1: y, x2: right, y2: y }, style: stroke },
          { type: "line", shape: { x1: left, y1: y - 6, x2: left, y2: y + 6 }, style: stroke },
          { type: "line", shape: { x1: right, y1: y - 6, x2: right, y2: y + 6 }, style: stroke },
          { type: "circle", shape: { cx: middle, cy: y, r: 5.5 }, style: { fill: tint } },
          {
            type: "text",
            style: {
              text: is_narrow(chart) ? "" : gap.text, x: right + 10, y: y - 6, fill: colour("soft"),
              stroke: colour("card"), lineWidth: 4, fontSize: 12,
            },
          },
        ],
      };
    },
    tooltip: {
      formatter: ({ value }) => tip_content(labels[value[3]], [data.gaps[value[3]].text || number_text(value[2])]),
    },
    z: 3,
    markLine: {
      z: 1, silent: true, symbol: "none", label: { show: false }, lineStyle: { color: colour("soft"), type: "dashed" },
      data: [{ xAxis: 0 }, { xAxis: 1 }],
    },
  };
  const ends = data.gaps.flatMap((gap) => [gap.low, gap.high, gap.value, 0, 1]);
  const low = Math.min(...ends);
  const high = Math.max(...ends);
  const room_for_text = is_narrow(chart) ? 0.05 : 0.3;
  chart.setOption({
    ...option,
    xAxis: lower_axis(data.gapTitle, low - 0.05 * (high - low || 1), high + room_for_text * (high - low || 1)),
    yAxis: row_axis(room, plot_height(chart, option)),
    series: [interval],
  });
}
