// SPDX-License-Identifier: Apache-2.0
// Runs inside a page and gives a list of what is wrong with it, as seen by somebody who looks at it.
(async () => {
  const problems = [];
  const pictures = [];
  const width = document.documentElement.clientWidth;

  const is_shown = (element) => element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const intersect = (a, b) => ({
    left: Math.max(a.left, b.left),
    right: Math.min(a.right, b.right),
    top: Math.max(a.top, b.top),
    bottom: Math.min(a.bottom, b.bottom),
  });
  const is_empty = (box) => box.right - box.left < 1 || box.bottom - box.top < 1;

  // What is left of a box when every ancestor that hides what overflows has cut it.
  const seen_part = (box, element) => {
    let part = box;
    for (let at = element; at && at !== document.body; at = at.parentElement) {
      const overflow = getComputedStyle(at).overflowX;
      if (overflow !== "visible" && !(at instanceof SVGElement)) part = intersect(part, at.getBoundingClientRect());
    }
    return part;
  };

  // Each line of each text, with its box.
  const texts = [];
  const chart_texts = []; // also what must be scrolled to
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const element = node.parentElement;
    if (!node.textContent.trim() || ["SCRIPT", "STYLE", "OPTION"].includes(element.tagName) || !is_shown(element))
      continue;
    const in_svg = element instanceof SVGElement;
    const range = document.createRange();
    range.selectNodeContents(node);
    if (in_svg) chart_texts.push({ box: element.getBoundingClientRect(), element, text: node.textContent.trim() });
    for (const box of in_svg ? [element.getBoundingClientRect()] : range.getClientRects()) {
      const part = seen_part(box, element);
      if (!is_empty(part)) texts.push({ box: part, element, in_svg, text: node.textContent.trim().slice(0, 40) });
    }
  }
  for (const control of document.querySelectorAll("select")) {
    if (is_shown(control)) texts.push({ box: control.getBoundingClientRect(), element: control, text: "(a choice)" });
  }

  // Nothing is wider than the page.
  if (document.documentElement.scrollWidth > width) {
    problems.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${width}`);
  }
  for (const { box, text, element } of texts) {
    if ((box.right > width + 1 || box.left < -1) && !element.closest(".scroll"))
      problems.push(`"${text}" leaves the window`);
  }

  // No text lies on another, and no card on another.
  const overlap = (a, b) => {
    const both = intersect(a, b);
    return both.right - both.left > 2 && both.bottom - both.top > 3;
  };
  texts.sort((a, b) => a.box.top - b.box.top);
  for (let i = 0; i < texts.length; i++) {
    for (let j = i + 1; j < texts.length && texts[j].box.top < texts[i].box.bottom; j++) {
      if (texts[i].element !== texts[j].element && overlap(texts[i].box, texts[j].box)) {
        problems.push(`"${texts[i].text}" overlaps "${texts[j].text}"`);
      }
    }
  }
  const cards = [...document.querySelectorAll("header, footer, .card, .facts > div, .remarks")].filter(is_shown);
  cards.forEach((a, i) =>
    cards.slice(i + 1).forEach((b) => {
      if (!a.contains(b) && !b.contains(a) && overlap(a.getBoundingClientRect(), b.getBoundingClientRect())) {
        problems.push(
          `the card "${a.textContent.trim().slice(0, 30)}" overlaps "${b.textContent.trim().slice(0, 30)}"`,
        );
      }
    }),
  );

  // Text of a chart is not cut by the chart's edge.
  for (const { box, element, text } of chart_texts) {
    const frame = element.ownerSVGElement.getBoundingClientRect();
    if (
      box.left < frame.left - 1 ||
      box.right > frame.right + 1 ||
      box.top < frame.top - 1 ||
      box.bottom > frame.bottom + 1
    ) {
      problems.push(`"${text}" is cut by the edge of its chart`);
    }
  }

  // Text can be told from what is behind it: a contrast of at least 4.5.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const luminance = (colour) => {
    const [r, g, b] = [...rgba(colour)]
      .map((value) => value / 255)
      .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!(at instanceof SVGElement) && rgba(colour)[3] === 255) return colour;
    }
    return "white";
  };
  for (const { element, in_svg, text } of texts) {
    const style = getComputedStyle(element);
    const [a, b] = [luminance(in_svg ? style.fill : style.color), luminance(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) problems.push(`"${text}" has a contrast of ${contrast.toFixed(1)} only`);
  }

  // Every chart is really drawn, in the colours that are kept for data, and says in words what it shows.
  const colour_of = (name) => rgba(getComputedStyle(document.documentElement).getPropertyValue(`--${name}`)).join();
  const numbered = (letter, from, to) =>
    Array.from({ length: to - from + 1 }, (_, i) => colour_of(`${letter}${from + i}`));
  const data_colours = new Set([...numbered("c", 1, 8), ...["recovery", "futile", "open", "denied"].map(colour_of)]);
  const colours_in = (image) => {
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [400, 100];
    const context = copy.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, 400, 100);
    const { data } = context.getImageData(0, 0, 400, 100);
    return new Set(Array.from({ length: 40000 }, (_, i) => data.slice(4 * i, 4 * i + 4).join())).size;
  };
  const charts = [...document.querySelectorAll(".chart")].filter(is_shown);
  const words = [...document.querySelectorAll(".figure > .words")].filter(is_shown);
  const is_plain = document.getElementById("report-data") === null;
  if ((charts.length === 0) !== is_plain) problems.push(`there are ${charts.length} charts`);
  if ((words.length === 0) === is_plain) problems.push(`there are ${words.length} charts in words`);
  for (const chart of charts) {
    const name = chart.closest(".card").querySelector("h2, h3").textContent;
    const svg = chart.querySelector("svg");
    if (!chart.getAttribute("aria-label")) problems.push(`"${name}" has no text alternative`);
    if (!svg) {
      problems.push(`"${name}" is not drawn`);
      continue;
    }
    const box = svg.getBoundingClientRect();
    let widest = 0;
    let largest = 0;
    for (const mark of svg.querySelectorAll("path, rect, circle, line, polyline, polygon")) {
      const part = intersect(mark.getBoundingClientRect(), box);
      const style = getComputedStyle(mark);
      const paints = [style.fill, style.stroke]
        .filter((paint) => paint !== "none")
        .map((paint) => rgba(paint).join());
      if (paints.some((paint) => data_colours.has(paint))) {
        widest = Math.max(widest, part.right - part.left);
        largest = Math.max(largest, part.right - part.left + part.bottom - part.top);
      }
    }
    const is_heat_map = /relative to its own mean|Relative error of each unit/.test(name);
    if (!is_heat_map && largest < 8) problems.push(`"${name}" shows no data`);
    if (!is_heat_map && !/Recoveries|gap/.test(name) && widest < 100) problems.push(`"${name}" has no curve`);
    const image = svg.querySelector("image");
    if (is_heat_map && !image) problems.push(`"${name}" has no picture`);
    if (is_heat_map && image) {
      const picture = new Image();
      picture.src = image.getAttribute("href") ?? image.getAttribute("xlink:href");
      pictures.push(
        picture.decode().then(() => {
          if (colours_in(picture) < 3) problems.push(`"${name}" has less than three colours`);
          const drawn = image.getBoundingClientRect();
          if (drawn.width * drawn.height < 0.4 * box.width * box.height)
            problems.push(`"${name}" does not fill its frame`);
        }),
      );
    }
    if (svg.querySelectorAll("text").length < 4) problems.push(`"${name}" has no numbers on its axes`);
    if (!/step|gap|factor/.test(svg.textContent)) problems.push(`"${name}" does not name its axis`);
  }
  await Promise.all(pictures);
  return problems;
})();
