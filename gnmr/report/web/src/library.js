// SPDX-License-Identifier: Apache-2.0
// The parts of ECharts that are used, and what all charts share: colours of the page, axes, zoom, tips.
import { init, use } from "echarts/core";
import { CustomChart, LineChart, ScatterChart } from "echarts/charts";
import {
  DataZoomSliderComponent, GridComponent, LegendComponent, MarkLineComponent, TooltipComponent,
} from "echarts/components";
import { SVGRenderer } from "echarts/renderers";

use([
  CustomChart, LineChart, ScatterChart, DataZoomSliderComponent, GridComponent, LegendComponent, MarkLineComponent,
  TooltipComponent, SVGRenderer,
]);

/** An empty chart in an element. */
export function make_chart(element) {
  return init(element, null, { renderer: "svg" });
}

/** A colour of the style sheet, by its name there. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The colour of a line among others, by its number; the style sheet's legend has the same. */
export function line_colour(line) {
  return colour(`c${(line % 8) + 1}`);
}

/** The dashes of a line among others. */
export function line_dash(line) {
  return ["solid", [8, 5], [2, 4], [12, 4, 2, 4]][line % 4];
}

/** Whether there is little room. */
export function is_narrow(chart) {
  return chart.getWidth() < 560;
}

/** A number in few digits. */
export function number_text(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

/** A name without its middle where it is too long: both ends distinguish units. */
export function short_name(name, letters) {
  const characters = [...name];
  if (characters.length <= letters) return name;
  const head = Math.floor((letters - 1) * 0.4);
  return characters.slice(0, head).join("") + "…" + characters.slice(characters.length - (letters - 1 - head)).join("");
}

/** Names without the first part, `layers.`, that nearly all of them begin with. */
function without_common_start(names) {
  const start_of = (name) => name.slice(0, name.indexOf(".") + 1);
  const counts = new Map();
  for (const name of names) counts.set(start_of(name), (counts.get(start_of(name)) ?? 0) + 1);
  const [start, count] = [...counts].reduce((most, each) => (each[1] > most[1] ? each : most), ["", 0]);
  if (start === "" || count < 0.8 * names.length || names.length < 3) return names;
  return without_common_start(names.map((name) => (name.startsWith(start) ? name.slice(start.length) : name)));
}

/** An element with text in it; text is never read as HTML. */
export function element_with(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

/** The content of a tip: a title and lines. */
export function tip_content(title, lines) {
  const content = document.createElement("div");
  content.append(element_with("b", title));
  for (const line of lines) content.append(element_with("div", line));
  return content;
}

const axis_text = () => ({ color: colour("soft"), fontSize: 12 });

/** An axis of steps from `first` to `last`, whole columns at both ends. */
export function step_axis(first, last, chart) {
  return {
    type: "value",
    name: "optimizer step",
    nameLocation: "middle",
    nameGap: 28,
    nameTextStyle: { color: colour("ink"), fontSize: 12 },
    min: first - 0.5,
    max: last + 0.5,
    splitNumber: is_narrow(chart) ? 4 : 8,
    minInterval: 1,
    axisLabel: {
      ...axis_text(), hideOverlap: true, showMinLabel: false, showMaxLabel: false,
      formatter: (value) => (Number.isInteger(value) ? String(value) : ""),
    },
    axisLine: { lineStyle: { color: colour("soft") } },
    splitLine: { lineStyle: { color: colour("grid") } },
  };
}

/** An axis of values with its name. */
export function value_axis(name, more = {}) {
  return {
    type: "value",
    name,
    nameLocation: "middle",
    nameGap: 46,
    nameTextStyle: { color: colour("ink"), fontSize: 12 },
    scale: true,
    axisLabel: { ...axis_text(), hideOverlap: true, formatter: number_text },
    splitLine: { lineStyle: { color: colour("grid") } },
    ...more,
  };
}

/** The value axis below a plot that is not over steps. */
export function lower_axis(name, min, max) {
  const axis = value_axis(name, { nameGap: 28, min, max });
  return { ...axis, axisLabel: { ...axis.axisLabel, showMinLabel: false, showMaxLabel: false } };
}

/** An axis with a row a name, from top to bottom; where rows are lower than text, only some have their name. */
export function row_axis(room, plot_height) {
  const every = Math.ceil((16 * room.names.length) / plot_height);
  return {
    type: "category",
    data: room.names.map((_, row) => row), // names need not be different
    inverse: true,
    axisTick: { show: false },
    axisLine: { lineStyle: { color: colour("rule") } },
    axisLabel: { ...axis_text(), interval: (row) => row % every === 0, formatter: (row) => room.names[Number(row)] },
    splitArea: { show: false },
  };
}

/** Names as short as there is room for, and the margin that they need. */
export function name_room(chart, full_names) {
  const most = is_narrow(chart) ? 14 : 28;
  const names = without_common_start(full_names).map((name) => short_name(name, most));
  return { names, margin: 18 + Math.max(...names.map((name) => [...name].length)) * 7.4 };
}

/** The height of the plot in a chart with these options. */
export function plot_height(chart, option) {
  return chart.getHeight() - option.grid.top - option.grid.bottom;
}

/** What every chart has. `zoom`: whether its slider is shown; those without one follow the others. */
export function common_option({ left = 66, bottom = 46, zoom = false, tooltip = "axis" } = {}) {
  return {
    animation: false,
    aria: { enabled: false },
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
    grid: { left, right: 18, top: 12, bottom: bottom + (zoom ? 34 : 0), outerBoundsMode: "none" },
    dataZoom: [{
      type: "slider", show: zoom, xAxisIndex: 0, filterMode: "none", height: 20, bottom: 6, left, right: 18,
      showDetail: false, brushSelect: false, borderColor: colour("rule"), fillerColor: "rgba(120,140,170,0.22)",
      backgroundColor: "transparent", handleStyle: { color: colour("card"), borderColor: colour("soft") },
      dataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } },
      selectedDataBackground: { lineStyle: { opacity: 0 }, areaStyle: { opacity: 0 } },
      moveHandleStyle: { color: colour("rule") },
    }],
    tooltip: tooltip && {
      trigger: tooltip,
      confine: true,
      backgroundColor: colour("card"),
      borderColor: colour("rule"),
      textStyle: { color: colour("ink"), fontSize: 13 },
      axisPointer: { lineStyle: { color: colour("soft") } },
    },
  };
}

/** The points of a curve as the library wants them. */
export function points_of(curve) {
  return curve.x.map((x, i) => [x, curve.y[i]]);
}

/** The part of a rectangle that lies within a frame; undefined where none does. */
export function clipped(rectangle, frame) {
  const x = Math.max(rectangle.x, frame.x);
  const y = Math.max(rectangle.y, frame.y);
  const width = Math.min(rectangle.x + rectangle.width, frame.x + frame.width) - x;
  const height = Math.min(rectangle.y + rectangle.height, frame.y + frame.height) - y;
  return width >= 0 && height >= 0 ? { x, y, width, height } : undefined;
}
