// SPDX-License-Identifier: Apache-2.0
// The heat map: one picture with a pixel a cell, which the browser enlarges, and outlines on it.
import {
  clipped, colour, common_option, element_with, name_room, plot_height, row_axis, step_axis,
} from "./library.js";

const colours = 13;
// What a map shows: powers of 2 at either end of a byte, and of its colours, of which `first` is the lowest.
const ratios = { byte: [-6, 6], colour: [-3, 3], first: 0, text: ratio_text };
const errors = { byte: [-12, 0], colour: [-9, -1], first: (colours - 1) / 2, text: error_text };
const none = 0;
const not_finite = 255;

function bytes_of(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** The power of 2 that a byte stands for. */
function power_of(byte, kind) {
  const [low, high] = kind.byte;
  return ((byte - 1) / 253) * (high - low) + low;
}

function rgb_of(name) {
  const text = colour(name);
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

/** A colour for each byte, as red, green, blue, opacity. */
function colour_table(kind) {
  const stops = Array.from({ length: colours }, (_, i) => rgb_of(`h${i}`));
  return Array.from({ length: 256 }, (_, byte) => {
    if (byte === none) return [0, 0, 0, 0];
    if (byte === not_finite) return [...rgb_of("non-finite"), 255];
    const [low, high] = kind.colour;
    const share = (Math.max(low, Math.min(high, power_of(byte, kind))) - low) / (high - low);
    const at = kind.first + share * (colours - 1 - kind.first);
    const below = Math.min(colours - 2, Math.floor(at));
    return [...stops[below].map((dim, i) => Math.round(dim + (stops[below + 1][i] - dim) * (at - below))), 255];
  });
}

function picture_of(cells, columns, rows, kind) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const table = colour_table(kind);
  for (let i = 0; i < cells.length; i++) image.data.set(table[cells[i]], 4 * i);
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

function outlines(bars, style) {
  return {
    type: "custom",
    silent: true,
    data: bars,
    encode: { x: [1, 2], y: 0 },
    clip: true,
    renderItem: (params, api) => {
      const [left, middle] = api.coord([api.value(1) - 0.5, api.value(0)]);
      const [right] = api.coord([api.value(2) + 0.5, api.value(0)]);
      const height = api.size([0, 1])[1];
      const frame = params.coordSys;
      const shape = clipped({ x: left, y: middle - height / 2, width: Math.max(2, right - left), height }, frame);
      return shape && { type: "rect", shape, style };
    },
  };
}

function ratio_text(byte) {
  if (byte === none) return "no sample";
  if (byte === not_finite) return "norm not finite";
  const ratio = 2 ** power_of(byte, ratios);
  if (byte === 254) return "ratio 64 or more";
  if (byte === 1) return "ratio 1/64 or less";
  return `ratio about ${Number(ratio.toPrecision(2))}`;
}

function error_text(byte) {
  if (byte === none) return "not measured";
  if (byte === not_finite) return "error not finite";
  if (byte === 254) return "error 1 or more";
  if (byte === 1) return "error 1/4096 or less";
  return `error about ${Number((2 ** power_of(byte, errors)).toPrecision(2))}`;
}

/** The tip follows the pointer, since all cells are one picture. */
function follow_pointer(chart, run, map, kind, cells) {
  const { units, first, width, columns } = map;
  const holder = chart.getDom();
  holder.querySelector(".tip")?.remove();
  const tip = element_with("div", "");
  tip.className = "tip";
  tip.hidden = true;
  holder.append(tip);
  const within = (bars, row, from, to) => bars.some((bar) => bar[0] === row && bar[1] <= to && bar[2] >= from);
  const show = ({ offsetX, offsetY }) => {
    const inside = chart.containPixel({ gridIndex: 0 }, [offsetX, offsetY]);
    const [step, row] = inside ? chart.convertFromPixel({ gridIndex: 0 }, [offsetX, offsetY]) : [0, -1];
    const column = Math.floor((step + 0.5 - first) / width);
    tip.hidden = !(inside && column >= 0 && column < columns && row >= 0 && row < units.length);
    if (tip.hidden) return;
    const from = first + column * width;
    const to = from + width - 1;
    const lines = [width > 1 ? `steps ${from} to ${to}` : `step ${from}`, kind.text(cells[row * columns + column])];
    if (map.chronic?.includes(row)) lines.push("chronic unit");
    if (within(map.faults, row, from, to)) lines.push("injected fault");
    if (within(map.recoveries, row, from, to)) lines.push(run.watchOnly ? "would be in recovery" : "in recovery");
    tip.replaceChildren(element_with("b", units[row]), ...lines.map((text) => element_with("div", text)));
    const left = offsetX + 14 + tip.offsetWidth > holder.clientWidth ? offsetX - 14 - tip.offsetWidth : offsetX + 14;
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = `${Math.max(0, Math.min(offsetY + 14, holder.clientHeight - tip.offsetHeight))}px`;
  };
  const surface = chart.getZr();
  surface.off("mousemove");
  surface.off("globalout");
  surface.on("mousemove", show);
  surface.on("globalout", () => { tip.hidden = true; });
}

/** Ratios of all units over steps, with faults and recoveries outlined. */
export function heat_map_chart(chart, run) {
  draw_map(chart, run, run.heat, ratios);
}

/** Errors of all units over steps; chronic units are outlined too. */
export function error_map_chart(chart, run) {
  draw_map(chart, run, run.errors, errors);
}

function draw_map(chart, run, map, kind) {
  const { units, first, width, columns } = map;
  const chronic = (map.chronic ?? []).map((row) => [row, first, first + columns * width - 1, 0]);
  const cells = bytes_of(map.cells);
  const room = name_room(chart, units);
  const image = picture_of(cells, columns, units.length, kind);
  const picture = {
    type: "custom",
    silent: true,
    data: [[first - 0.5, first - 0.5 + columns * width]],
    encode: { x: [0, 1] },
    clip: true,
    renderItem: (params, api) => {
      const [left, top] = api.coord([api.value(0), 0]);
      const [right, bottom] = api.coord([api.value(1), units.length - 1]);
      const half = api.size([0, 1])[1] / 2;
      return {
        type: "image",
        style: { image, x: left, y: top - half, width: right - left, height: bottom - top + 2 * half },
        clipPath: { type: "rect", shape: { ...params.coordSys } },
      };
    },
  };
  chart.off("rendered");
  chart.on("rendered", () => stretch_picture(chart));
  const x_axis = step_axis(run.first, run.last, chart);
  x_axis.splitLine = { show: false };
  const option = common_option({ left: room.margin, zoom: true, tooltip: false });
  chart.setOption({
    ...option,
    xAxis: x_axis,
    yAxis: row_axis(room, plot_height(chart, option)),
    series: [
      picture,
      outlines(map.recoveries, { fill: "none", stroke: colour("recovery"), lineWidth: 1.6 }),
      outlines(map.faults, { fill: "none", stroke: colour("fault"), lineWidth: 1.6, lineDash: [4, 2] }),
      // Last, since it may lie on the outline of a recovery.
      outlines(chronic, { fill: "none", stroke: colour("chronic"), lineWidth: 1.6, lineDash: [2, 2] }),
    ],
  });
  follow_pointer(chart, run, map, kind, cells);
}

/** A cell of the picture is as wide and as high as the plot wants it; SVG would keep it square. */
function stretch_picture(chart) {
  for (const image of chart.getDom().querySelectorAll("image")) image.setAttribute("preserveAspectRatio", "none");
}
