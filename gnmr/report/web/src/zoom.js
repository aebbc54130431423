// SPDX-License-Identifier: Apache-2.0
// Charts of one group show the same steps: zooming one zooms all.

const groups = new Map();
let passing_on = false;

/** Lets a chart take part in the zoom of its group. */
export function share_zoom(chart, group) {
  const members = groups.get(group) ?? [];
  groups.set(group, members);
  members.push(chart);
  chart.on("datazoom", () => {
    if (passing_on) return;
    const { start, end } = chart.getOption().dataZoom[0];
    passing_on = true;
    for (const other of members) {
      if (other !== chart && !other.isDisposed()) {
        other.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start, end });
      }
    }
    passing_on = false;
  });
}
