// What script adds to the charts of `serve`: a line and the values under the pointer. Charts are whole without it.
"use strict";
(() => {
  const LEFT = 70, RIGHT = 472, TOP = 16, BASE = 132; // as charts.py draws
  const SVG = "http://www.w3.org/2000/svg";
  const read = new WeakMap(); // by chart: its times and lines
  let shown = null;

  function threeDigits(value) {
    const text = value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
    return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  }

  function decimal(value) {
    if (value >= 999.5e18) return `${value.toExponential(0)} `;
    for (const [size, unit] of [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (value >= 0.9995 * size) return `${threeDigits(value / size)} ${unit}`;
    }
    return `${threeDigits(value)} `;
  }

  function spanText(seconds) {
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (seconds >= 2 * size) return `${threeDigits(seconds / size)} ${unit}`;
    }
    return `${threeDigits(seconds)} s`;
  }

  function written(value, unit) {
    if (unit === "time") return spanText(value);
    return unit === "bytes" ? `${decimal(value)}B/s` : decimal(value).trim();
  }

  function parse(chart) {
    if (!read.has(chart)) {
      const numbers = (text) => (text ? text.split(",").map((part) => (part === "" ? null : Number(part))) : []);
      const lines = [...chart.querySelectorAll("path[data-values]")];
      read.set(chart, {
        first: Number(chart.dataset.first),
        span: Number(chart.dataset.last) - Number(chart.dataset.first),
        times: numbers(chart.dataset.times),
        lines: lines.map((line) => ({ name: line.dataset.name, values: numbers(line.dataset.values) })),
      });
    }
    return read.get(chart);
  }

  function hide() {
    if (shown) shown.remove();
    shown = null;
  }

  function show(chart, place) {
    hide();
    const { first, span, times, lines } = parse(chart);
    if (!times.length) return;
    const wanted = (place - LEFT) / (RIGHT - LEFT) * span;
    let nearest = 0;
    times.forEach((time, number) => {
      if (Math.abs(time - wanted) < Math.abs(times[nearest] - wanted)) nearest = number;
    });
    if (Math.abs(times[nearest] - wanted) > span / 20) return; // nobody looked there
    const left = LEFT + times[nearest] / span * (RIGHT - LEFT);
    const day = new Date(1000 * (first + times[nearest])).toISOString();
    const rows = [`${day.slice(5, 10)} ${day.slice(11, 16)} UTC`];
    for (const line of lines) {
      const value = line.values[nearest];
      const text = value === null || value === undefined ? "unknown" : written(value, chart.dataset.unit);
      rows.push(`${line.name}: ${text}`);
    }
    shown = document.createElementNS(SVG, "g");
    shown.setAttribute("class", "hover");
    const rule = document.createElementNS(SVG, "line");
    for (const [name, value] of [["x1", left], ["x2", left], ["y1", TOP], ["y2", BASE]]) rule.setAttribute(name, value);
    const box = document.createElementNS(SVG, "rect");
    shown.append(rule, box);
    const isRight = left > (LEFT + RIGHT) / 2;
    let widest = 0;
    const texts = rows.map((row, number) => {
      const text = document.createElementNS(SVG, "text");
      text.textContent = row;
      text.setAttribute("y", TOP + 13 + 14 * number);
      shown.append(text);
      return text;
    });
    chart.append(shown);
    for (const text of texts) widest = Math.max(widest, text.getComputedTextLength());
    const start = isRight ? left - widest - 12 : left + 12;
    for (const text of texts) text.setAttribute("x", start);
    for (const [name, value] of [["x", start - 5], ["y", TOP], ["width", widest + 10], ["height", 14 * rows.length + 6]]) {
      box.setAttribute(name, value);
    }
  }

  function follow(event) {
    const chart = event.target.closest ? event.target.closest("svg.chart") : null;
    if (!chart) {
      hide();
      return;
    }
    const frame = chart.getBoundingClientRect();
    show(chart, (event.clientX - frame.left) / frame.width * 480);
  }
  document.addEventListener("pointermove", follow);
  document.addEventListener("pointerdown", follow); // a finger does not move before it touches
})();
