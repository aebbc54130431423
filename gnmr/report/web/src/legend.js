// SPDX-License-Identifier: Apache-2.0
// The page's legend becomes a row of switches: each shows or hides an arm.
import { element_with } from "./library.js";

/** Makes the legend above a chart work. Its entries are the arms, by label. */
export function make_legend_switch(element, chart) {
  const legend = element.parentElement.querySelector(".legend");
  for (const entry of legend.querySelectorAll("li")) {
    const label = entry.textContent.trim();
    const button = element_with("button", "");
    button.type = "button";
    button.append(...entry.childNodes);
    button.setAttribute("aria-pressed", "true");
    button.title = "Show or hide";
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      chart.dispatchAction({ type: shown ? "legendSelect" : "legendUnSelect", name: label });
    });
    entry.append(button);
  }
}
