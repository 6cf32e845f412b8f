"use strict";
// Draws each chart in the colours of the style sheet, and again when the reader's theme changes.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const COLOURED = new Set(["color", "fillcolor"]);
  const theme = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 640px)");
  let style = null;

  const colour = (name) => style.getPropertyValue(name).trim() || name;

  // A copy in which every colour `--name` is the style sheet's.
  function coloured(value, key) {
    if (Array.isArray(value)) return value.map((item) => coloured(item, key));
    if (value !== null && typeof value === "object") {
      const made = Object.fromEntries(Object.entries(value).map(([name, item]) => [name, coloured(item, name)]));
      // As two further digits of the colour: Plotly's own opacity leaves the area of a trace as it is.
      if (made.fillcolor && made.opacity) made.fillcolor += Math.round(255 * made.opacity).toString(16).padStart(2, "0");
      return made;
    }
    return typeof value === "string" && COLOURED.has(key) && value.startsWith("--") ? colour(value) : value;
  }

  function axis(given) {
    return {
      gridcolor: colour("--faint"), linecolor: colour("--faint"), zerolinecolor: colour("--quiet"), zeroline: false,
      tickfont: { size: 12, color: colour("--quiet") }, ticks: "", automargin: true, nticks: narrow.matches ? 5 : 9,
      ...given,
      title: { font: { size: 12, color: colour("--quiet") }, standoff: 8, ...(given.title || {}) },
    };
  }

  function layout(given) {
    const further = Object.keys(given).filter((name) => /^yaxis\d+$/.test(name));
    return {
      hovermode: "x unified", ...given,
      showlegend: false, autosize: true, dragmode: narrow.matches ? false : "zoom",
      margin: { l: 8, r: 10, t: 10, b: 8 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("--ink") },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--faint"), font: { color: colour("--ink") } },
      xaxis: { showgrid: false, showline: true, ...axis(given.xaxis || {}) },
      yaxis: { fixedrange: true, ...axis(given.yaxis || {}) },
      ...Object.fromEntries(further.map((name) => [name, { fixedrange: true, ...axis(given[name]) }])),
    };
  }

  function legend(place, plot, traces) {
    place.replaceChildren();
    const one = traces.filter((trace) => trace.showlegend !== false).length < 2;
    traces.forEach((trace, at) => {
      if (one || trace.showlegend === false) return;
      const mark = document.createElement("i");
      mark.style.background = trace.fillcolor || (trace.marker || trace.line).color;
      if (trace.mode === "markers") mark.className = "dot";
      const isLine = trace.mode?.startsWith("lines") && !trace.stackgroup && !trace.fill;
      if (isLine) {
        mark.className = "line";
        const { color, dash } = trace.line;
        mark.style.background = dash ? `repeating-linear-gradient(90deg, ${color} 0 6px, transparent 6px 10px)` : color;
      }
      const button = document.createElement("button");
      button.type = "button";
      button.title = "hide or show";
      button.append(mark, trace.meta);
      button.addEventListener("click", () => {
        const off = button.classList.toggle("off");
        Plotly.restyle(plot, { visible: !off }, [at]);
      });
      place.append(button);
    });
  }

  function draw() {
    style = getComputedStyle(document.documentElement);
    charts.forEach((chart, number) => {
      const plot = document.querySelector(`[data-chart="${number}"]`);
      const traces = coloured(chart.data, "");
      Plotly.react(plot, traces, layout(coloured(chart.layout, "")), { displayModeBar: false, responsive: true });
      const place = document.querySelector(`[data-legend="${number}"]`);
      if (place) legend(place, plot, traces);  // charts of a grid have one for all
    });
  }

  draw();
  theme.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
})();
