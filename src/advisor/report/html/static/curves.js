// Memory and the GPU's sensors over time.
// Points of a curve; its last value holds until `end`.
function pairs(curve, end) {
  const points = curve.time_ns.map((ns, i) => [ns, curve.value[i]]);
  if (end > curve.time_ns.at(-1)) points.push([end, curve.value.at(-1)]);
  return points;
}
const gpuName = (one) => (one.rank === null ? `GPU ${one.device}` : `rank ${one.rank}, GPU ${one.device}`);

// Bands of the recorded steps, for the first series of a grid.
function stepBands(steps, hidden) {
  if (!steps || hidden || !steps.start_ns.length) return undefined;
  const every = Math.ceil(steps.start_ns.length / 200);
  return {
    silent: true,
    itemStyle: { color: colour("--strong-line"), opacity: 0.16 },
    label: { show: false },
    data: steps.start_ns.flatMap((start, i) => (i % (2 * every) ? [] : [[{ xAxis: start }, { xAxis: steps.end_ns[i] }]])),
  };
}

function timeAxis(extent, more) {
  const [min, max] = extent;
  return axis({ type: "value", min, max, splitLine: { show: false }, axisLabel: { formatter: (ns) => moment(ns, max - min) }, ...more });
}

function extentOf(curves) {
  const all = curves.flatMap((curve) => [curve.time_ns[0], curve.time_ns.at(-1)]).filter((ns) => ns !== undefined);
  return all.length ? [Math.min(...all), Math.max(...all)] : [0, 1];
}

function drawMemory(box, data) {
  draw(box, (chart) => {
    const shown = data.memory.slice(0, 8);
    const extent = extentOf(shown.map((one) => one.allocated));
    const series = shown.flatMap((one, i) => {
      const line = (name, curve, more) => ({
        type: "line", name, step: "end", symbol: "none", data: pairs(curve, extent[1]), color: colour(`--class-${i % 8}`), ...more,
      });
      const both = [line(`${gpuName(one)}: allocated`, one.allocated, { lineStyle: { width: 1.5 }, areaStyle: { opacity: 0.18 } })];
      if (one.reserved) both.push(line(`${gpuName(one)}: reserved`, one.reserved, { lineStyle: { width: 1.5, type: "dashed" } }));
      return both;
    });
    if (series.length) series[0].markArea = stepBands(data.steps);
    return {
      grid: { left: 76, right: 20, top: 42, bottom: 34 },
      legend: { top: 4, left: 0, type: "scroll", textStyle: { color: colour("--muted") }, inactiveColor: colour("--strong-line") },
      tooltip: figuresTip((all) => [time(all[0].value[0], 4), ...all.map((one) => `${one.seriesName}  ${size(one.value[1])}`)].join("\n")),
      xAxis: timeAxis(extent),
      yAxis: bytesAxis(highestOf(shown.flatMap((one) => [one.allocated, ...(one.reserved ? [one.reserved] : [])])), {}),
      series,
    };
  });
}

// Sensors that share an axis, in the order in which they are drawn; the first of a group names it.
const PANELS = [
  ["utilisation", "utilization", "memory_utilization"], ["SM clock", "sm_clock", "sm_clock_max"], ["memory clock", "memory_clock"],
  ["power", "power", "power_limit"], ["temperature", "temperature"], ["memory used", "memory_used"],
];
const LIMITS = new Set(["power_limit", "sm_clock_max"]);
const WORDS = { utilization: "utilisation", memory_utilization: "memory controller busy", sm_clock: "SM clock", sm_clock_max: "highest SM clock" };

// Groups that have something to show: [title, metric, ...]. What never changes and is no panel of its own stands in the table.
function panelsOf(metrics) {
  const steady = (name) => new Set(metrics[name].value).size < 2;
  const shown = PANELS.map(([title, ...names]) => [title, ...names.filter((name) => metrics[name])]).filter((panel) => panel.length > 1);
  const rest = Object.keys(metrics).filter((name) => !PANELS.flat().includes(name) && !steady(name));
  return [...shown.filter(([, first]) => first !== "memory_clock" || !steady(first)), ...rest.map((name) => [name.replaceAll("_", " "), name])].slice(0, 8);
}

function drawSamples(box, data, index) {
  const gpu = data.samples.gpus[index];
  const panels = panelsOf(gpu.metrics);
  const label = (name) => WORDS[name] ?? name.replaceAll("_", " ");
  const unit = (name) => gpu.units[name] ?? "";
  const bytes = (name) => /^(B|bytes?)$/.test(unit(name));
  const words = (name, value) => (bytes(name) ? size(value) : `${figure(value)} ${unit(name)}`.trim());
  const [row, gap, top] = [78, 32, 26];
  const reasons = gpu.throttled;
  const below = top + panels.length * (row + gap);
  box.style.height = `${below + (reasons.length ? 26 + reasons.length * 16 : 0) + 4}px`;
  const title = (text, y, ink) => ({ text: plainText(text), left: 70, top: y, textStyle: { fontSize: 12, fontWeight: 600, color: colour(ink) } });
  draw(box, () => {
    const extent = extentOf(panels.flatMap(([, ...names]) => names.map((name) => gpu.metrics[name])));
    const lines = panels.flatMap(([, ...names], i) => names.map((name, k) => ({ name, i, k })));
    const option = {
      grid: panels.map((_, i) => ({ left: 76, right: 24, top: top + i * (row + gap), height: row })),
      title: panels.map(([text, ...names], i) => title([text, ...names.slice(1).map(label)].join(", "), i * (row + gap) + 2, "--ink")),
      tooltip: figuresTip((all) => [time(all[0].value[0], 4), ...all.map((one) => `${label(lines[one.seriesIndex].name)}  ${words(lines[one.seriesIndex].name, one.value[1])}`)].join("\n")),
      axisPointer: { link: [{ xAxisIndex: "all" }] },
      xAxis: panels.map((_, i) => timeAxis(extent, { gridIndex: i, axisLabel: { show: i === panels.length - 1, formatter: (ns) => moment(ns, extent[1] - extent[0]) } })),
      yAxis: panels.map(([, first], i) => bytes(first) ? bytesAxis(highestOf([gpu.metrics[first]]), { gridIndex: i, splitNumber: 2, axisLabel: { fontSize: 11 } }) : axis({
        gridIndex: i, type: "value", splitNumber: 2, min: /temperature|%/.test(first + unit(first)) && unit(first) !== "%" ? undefined : 0,
        scale: unit(first) !== "%", ...(unit(first) === "%" ? { max: 100 } : {}), axisLabel: { formatter: (value) => words(first, value), fontSize: 11 },
      })),
      series: lines.map(({ name, i, k }) => ({
        type: "line", step: "end", symbol: gpu.metrics[name].time_ns.length < 40 && !k ? "circle" : "none", symbolSize: 4, xAxisIndex: i, yAxisIndex: i,
        data: pairs(gpu.metrics[name], extent[1]), color: colour(LIMITS.has(name) ? "--high" : k ? "--class-2" : "--accent"),
        lineStyle: { width: 1.5, type: k ? "dashed" : "solid" },
        markArea: k ? undefined : stepBands(data.steps, !data.samples.aligned),
      })),
    };
    if (reasons.length) {
      const at = panels.length;
      option.grid.push({ left: 76, right: 24, top: below + 8, height: reasons.length * 16 });
      option.xAxis.push(timeAxis(extent, { gridIndex: at, axisLabel: { show: false } }));
      option.yAxis.push({ gridIndex: at, type: "value", min: 0, max: reasons.length, inverse: true, show: false });
      option.title.push(title(`throttled: ${reasons.map((one) => one.label).join(", ")}`, below - 10, "--high"));
      option.series.push({
        type: "custom", xAxisIndex: at, yAxisIndex: at, encode: { x: [0, 1], y: 2 }, silent: true, tooltip: { show: false },
        data: reasons.flatMap((one, r) => one.start_ns.map((start, k) => [start, start + one.duration_ns[k], r])),
        renderItem: (params, api) => {
          const [x0, y] = api.coord([api.value(0), api.value(2)]);
          const [x1] = api.coord([api.value(1), api.value(2)]);
          return { type: "rect", shape: { x: x0, y: y + 2, width: Math.max(x1 - x0, 2), height: 12 }, style: { fill: colour("--high") } };
        },
      });
    }
    return option;
  });
}
