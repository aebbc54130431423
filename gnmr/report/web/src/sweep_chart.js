// SPDX-License-Identifier: Apache-2.0
// A chart of a sweep of options: lines over what was swept, and a level across.
import {
  colour, common_option, line_colour, line_dash, lower_axis, number_text, points_of, tip_content, value_axis,
} from "./library.js";

/** Lines with a point for each value that was tried. */
export function sweep_chart(chart, sweep) {
  const option = common_option();
  option.dataZoom = [];
  option.tooltip.formatter = (items) => tip_content(
    `${sweep.x}: ${number_text(items[0].value[0])}`,
    items.map((item) => `${item.seriesName}: ${number_text(item.value[1])}`));
  const series = sweep.lines.map((line, index) => ({
    type: "line", name: line.name, data: points_of(line.curve), color: line_colour(index), symbol: "circle",
    symbolSize: 7,
    lineStyle: { color: line_colour(index), width: 2, type: line_dash(index) }, emphasis: { disabled: true },
  }));
  if (sweep.level !== null) {
    series[0].markLine = {
      silent: true, symbol: "none", label: { show: false },
      lineStyle: { color: colour("c2"), type: "dashed", width: 1.6 },
      data: [{ yAxis: sweep.level }],
    };
  }
  const x = sweep.lines.flatMap((line) => line.curve.x);
  const highest = Math.max(...sweep.lines.flatMap((line) => line.curve.y));
  const [low, high] = [Math.min(...x), Math.max(...x)];
  const margin = 0.05 * (high - low || 1);
  chart.setOption({
    ...option,
    xAxis: lower_axis(sweep.x, low - margin, high + margin),
    yAxis: value_axis(
      sweep.y, { min: 0, ...(sweep.level > highest && { max: Number((1.2 * sweep.level).toPrecision(2)) }) }),
    series,
  });
}
