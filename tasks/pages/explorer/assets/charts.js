// The specifications of maps and charts for Vega, which draws them as SVG.

import { peak, release } from "./base.js";

export const dark = matchMedia("screen and (prefers-color-scheme: dark)");

/** Return the colours of the scheme that the reader prefers. */
function colours() {
  return dark.matches
    ? { ink: "#e8e8e8", faint: "#4a4f57", none: "#23272e", flow: "#ffd28a", line: "#8ab4f8", here: "#ffb454", shades: ["#24405e", "#d6e8ff"] }
    : { ink: "#1a1a1a", faint: "#c9ccd1", none: "#f4f5f6", flow: "#d15c00", line: "#1b5fa8", here: "#b34700", shades: ["#d9e8f6", "#08306b"] };
}

/** Return the lightest and the darkest shade of counts, or the other way round in the dark. */
export function shadesNow() {
  return colours().shades;
}

const drawn = new Map();

/** Draw a specification into the element with an id, and say in words what it shows; `clicked` is told the datum that is clicked. */
export async function draw(id, specification, description, clicked) {
  const place = document.getElementById(id);
  drawn.get(id)?.finalize();
  const { ink, faint } = colours();
  const text = { labelColor: ink, titleColor: ink, labelFont: "system-ui", titleFont: "system-ui", domainColor: faint, tickColor: faint };
  const config = { background: "transparent", axis: { ...text, gridColor: faint, labelLimit: 140 }, legend: text };
  const result = await window.vegaEmbed(
    place,
    { $schema: "https://vega.github.io/schema/vega/v6.json", autosize: { type: "fit", contains: "padding" }, ...specification },
    { mode: "vega", renderer: "svg", actions: false, ast: true, config, tooltip: { theme: dark.matches ? "dark" : "light" } },
  );
  drawn.set(id, result);
  const picture = place.querySelector("svg");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", description);
  if (clicked) {
    result.view.addEventListener("click", (_, item) => {
      if (item?.datum && item.datum.at !== undefined) clicked(item.datum);
    });
  }
}

/** Return how wide a chart may be in the element with an id. */
export function widthOf(id, most = 900) {
  return Math.max(240, Math.min(most, document.getElementById(id).clientWidth));
}

/**
 * Return a map: areas shaded by their counts, hatched where a count may be noise, with arcs for the largest flows.
 *
 * @param {object} shapes of the payload: paths, in a plane of a width and height
 * @param {{at: number, count: number|null, kind: string, label: string, isOther?: boolean}[]} areas kind: signal, noise, none or here
 * @param {{from: number, to: number, count: number, label: string}[]} arcs between areas
 * @param {{width: number, zoom: number, x: number, y: number}} view the middle and the enlargement
 */
export function mapOf(shapes, areas, arcs, view) {
  const { ink, faint, none, flow, here, shades } = colours();
  const scale = Math.min(view.width / shapes.width, 560 / shapes.height);
  const height = Math.round(shapes.height * scale);
  const zoomed = scale * view.zoom;
  const left = view.width / 2 - view.x * zoomed;
  const top = height / 2 - view.y * zoomed;
  const darkest = peak(areas.filter((area) => area.kind === "signal").map((area) => area.count), 1);
  const largest = peak(arcs.map((arc) => arc.count), 1);
  const there = areas.filter((area) => shapes.d[area.at] !== null).map((area) => ({ ...area, d: shapes.d[area.at] }));
  const bends = arcs
    .filter((arc) => shapes.x[arc.from] !== null && shapes.x[arc.to] !== null)
    .map((arc) => {
      const [x, y, u, v] = [shapes.x[arc.from], shapes.y[arc.from], shapes.x[arc.to], shapes.y[arc.to]].map((z) => z * zoomed);
      const within = (z, most) => Math.min(Math.max(z, 0), most * zoomed); // so that the arc, which lies between its three points, is too
      const [mx, my] = [within((x + u) / 2 - (v - y) * 0.18, shapes.width), within((y + v) / 2 + (u - x) * 0.18, shapes.height)];
      return { ...arc, d: `M${x},${y}Q${mx},${my},${u},${v}`, wide: 1 + 6 * Math.sqrt(arc.count / largest) };
    });
  return {
    width: view.width,
    height,
    padding: 0,
    autosize: "none",
    data: [
      { name: "areas", values: there },
      { name: "arcs", values: bends },
    ],
    scales: [{ name: "shade", type: "sqrt", domain: [0, darkest], range: shades, interpolate: "lab" }],
    marks: [
      {
        type: "group",
        clip: true,
        encode: { enter: { width: { value: view.width }, height: { value: height } } },
        marks: [
          {
            type: "path",
            from: { data: "areas" },
            encode: {
              enter: {
                path: { field: "d" },
                x: { value: left },
                y: { value: top },
                scaleX: { value: zoomed },
                scaleY: { value: zoomed },
                cursor: { value: "pointer" },
                tooltip: { field: "label" },
                fill: [
                  { test: "datum.kind === 'here'", value: here },
                  { test: "datum.kind === 'noise'", value: "url(#noise)" },
                  { test: "datum.kind === 'none'", value: none },
                  { scale: "shade", field: "count" },
                ],
                zindex: { signal: "datum.isOther ? 1 : 0" },
              },
              update: {
                stroke: [{ test: "datum.isOther", value: here }, { value: faint }],
                strokeWidth: [{ test: "datum.isOther", value: 3 }, { value: 0.6 }],
              },
              hover: { stroke: { value: ink }, strokeWidth: { value: 2 } },
            },
          },
          {
            type: "path",
            from: { data: "arcs" },
            interactive: false,
            encode: {
              enter: {
                path: { field: "d" },
                x: { value: left },
                y: { value: top },
                stroke: { value: flow },
                strokeWidth: { field: "wide" },
                strokeOpacity: { value: 0.75 },
                strokeCap: { value: "round" },
              },
            },
          },
        ],
      },
    ],
  };
}

/** Return a matrix of counts: rows and columns of areas, darker for more; `cells` have at, row, column, count, kind and label. */
export function matrixOf(cells, rows, columns, titles, width) {
  const { faint, none, shades } = colours();
  const darkest = peak(cells.filter((cell) => cell.kind === "signal").map((cell) => cell.count), 1);
  return {
    width,
    height: Math.max(120, Math.min(640, 26 * rows.length + 90)),
    data: [{ name: "cells", values: cells }],
    scales: [
      { name: "x", type: "band", domain: columns, range: "width" },
      { name: "y", type: "band", domain: rows, range: "height" },
      { name: "shade", type: "sqrt", domain: [0, darkest], range: shades, interpolate: "lab" },
    ],
    axes: [
      { orient: "bottom", scale: "x", title: titles[1], labelAngle: -60, labelAlign: "right", labelLimit: 90, labelOverlap: "greedy" },
      { orient: "left", scale: "y", title: titles[0], labelLimit: Math.round(width / 4), labelOverlap: "greedy" },
    ],
    marks: [
      {
        type: "rect",
        from: { data: "cells" },
        encode: {
          enter: {
            x: { scale: "x", field: "column" },
            y: { scale: "y", field: "row" },
            width: { scale: "x", band: 1 },
            height: { scale: "y", band: 1 },
            cursor: { value: "pointer" },
            tooltip: { field: "label" },
            stroke: { value: faint },
            strokeWidth: { value: 0.5 },
            fill: [
              { test: "datum.kind === 'noise'", value: "url(#noise)" },
              { test: "datum.kind === 'none'", value: none },
              { scale: "shade", field: "count" },
            ],
          },
        },
      },
    ],
  };
}

/** Return from where to where the intervals of rows reach, with 0 and 1 in between. */
function extentOf(rows) {
  return [-peak(rows.map((row) => -(row.low ?? row.count)), 0), peak(rows.map((row) => row.high ?? row.count), 1)];
}

/** Return bars with their intervals, in the order of the rows: each has label, count, low and high. */
export function barsOf(rows, title, width) {
  const { ink, line } = colours();
  const height = 26 * rows.length + 40;
  const [least, largest] = extentOf(rows);
  const has = rows.filter((row) => row.low !== null && row.low !== undefined);
  return {
    width,
    height,
    data: [
      { name: "rows", values: rows },
      { name: "ends", values: has },
    ],
    scales: [
      { name: "x", type: "linear", domain: [least, largest], range: "width", nice: true },
      { name: "y", type: "band", domain: rows.map((row) => row.label), range: "height", padding: 0.25 },
    ],
    axes: [
      { orient: "bottom", scale: "x", title, tickCount: 5, grid: true },
      { orient: "left", scale: "y", labelLimit: Math.round(width / 3) },
    ],
    marks: [
      {
        type: "rect",
        from: { data: "rows" },
        encode: {
          enter: {
            y: { scale: "y", field: "label" },
            height: { scale: "y", band: 1 },
            x: { scale: "x", value: 0 },
            x2: { scale: "x", field: "count" },
            fill: [{ test: "datum.kind === 'noise'", value: "url(#noise)" }, { value: line }],
            tooltip: { field: "tooltip" },
          },
        },
      },
      {
        type: "rule",
        from: { data: "ends" },
        encode: {
          enter: {
            y: { scale: "y", field: "label", band: 0.5 },
            x: { scale: "x", field: "low" },
            x2: { scale: "x", field: "high" },
            stroke: { value: ink },
            strokeWidth: { value: 2 },
          },
        },
      },
    ],
  };
}

/** Return a line along an ordered axis with the band of its intervals: each row has label, count, low and high. */
export function lineOf(rows, title, width) {
  const { line } = colours();
  const placed = rows.map((row, at) => ({ ...row, at }));
  const step = Math.ceil(rows.length / Math.max(3, Math.floor(width / 70)));
  return {
    width,
    height: 300,
    data: [
      { name: "rows", values: placed },
      { name: "band", values: placed.filter((row) => row.low !== null && row.low !== undefined) },
    ],
    scales: [
      { name: "x", type: "point", domain: rows.map((row) => row.label), range: "width" },
      {
        name: "y",
        type: "linear",
        domain: extentOf(rows),
        range: "height",
        nice: true,
      },
    ],
    axes: [
      {
        orient: "bottom",
        scale: "x",
        title,
        labelAngle: rows.length > 12 ? -45 : 0,
        labelAlign: rows.length > 12 ? "right" : "center",
        values: rows.filter((_, place) => place % step === 0).map((row) => row.label),
      },
      { orient: "left", scale: "y", title: release.many, tickCount: 5, grid: true },
    ],
    marks: [
      markOf("area", "band", "low", {
        y2: { scale: "y", field: "high" },
        fill: { value: line },
        fillOpacity: { value: 0.25 },
      }),
      markOf("line", "rows", "count", { stroke: { value: line }, strokeWidth: { value: 2 } }),
      markOf("symbol", "rows", "count", {
        size: { value: rows.length > 40 ? 8 : 24 },
        fill: { value: line },
        tooltip: { field: "tooltip" },
      }),
    ],
  };
}

/** Return marks of a type at the label and at a number of each row, and what else they look like. */
function markOf(type, data, y, look) {
  const place = { x: { scale: "x", field: "label" }, y: { scale: "y", field: y } };
  return { type, from: { data }, encode: { enter: { ...place, ...look } } };
}
