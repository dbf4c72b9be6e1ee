// Kernels under the roofs of the GPU: FLOP/s over FLOP a byte, both logarithmic.
function drawRoofline(box, data) {
  const { bandwidth, peaks, points } = data.roofline;
  const placed = points.filter((point) => point.intensity > 0 && point.flops > 0);
  const classes = [...new Set(placed.map((point) => point.kernel_class))];
  const top = Math.max(...Object.values(peaks), ...placed.map((point) => point.flops));
  const low = 10 ** Math.floor(Math.log10(Math.min(1, ...placed.map((point) => point.intensity))));
  const high = 10 ** Math.ceil(Math.log10(Math.max((3 * top) / bandwidth, ...placed.map((point) => point.intensity * 1.5))));
  const bottom = 10 ** Math.floor(Math.log10(Math.min(low * bandwidth, ...placed.map((point) => point.flops)) * 0.9));
  const roofs = new Map();  // types of the same peak share a line
  for (const [dtype, peak] of Object.entries(peaks)) roofs.set(peak, [...(roofs.get(peak) ?? []), dtype]);
  const { chart } = draw(box, (self) => ({
    grid: { left: 84, right: narrow(self) ? 20 : 40, top: 48, bottom: 50 },
    legend: { top: 4, left: 0, type: "scroll", data: classes.map(plainText), textStyle: { color: colour("--muted") }, inactiveColor: colour("--strong-line") },
    xAxis: axis({ type: "log", min: low, max: high, name: "FLOP per byte", nameLocation: "middle", nameGap: 30, axisLabel: { formatter: (value) => figure(value) } }),
    yAxis: axis({ type: "log", min: bottom, max: 10 ** Math.ceil(Math.log10(top * 1.2)), axisLabel: { formatter: (value) => `${flopRate(value)}/s` } }),
    series: [
      {
        type: "line", data: [[low, low * bandwidth], [top / bandwidth, top]], symbol: "none", silent: true, z: 1,
        lineStyle: { color: colour("--strong-line"), width: 2 },
        endLabel: { show: false },
        markPoint: { silent: true, symbol: "circle", symbolSize: 1, data: [{ coord: [low * 3, low * 3 * bandwidth] }], label: { show: true, position: [14, 4], formatter: `memory ${figure(bandwidth / 1e12)} TB/s`, color: colour("--muted") } },
      },
      ...[...roofs].map(([peak, dtypes]) => ({
        type: "line", data: [[peak / bandwidth, peak], [high, peak]], symbol: "none", silent: true, z: 1,
        lineStyle: { color: colour("--strong-line"), width: 2 },
        markPoint: { silent: true, symbol: "circle", symbolSize: 1, data: [{ coord: [high, peak] }], label: { show: true, position: [-4, -14], align: "right", formatter: `${plainText(dtypes.join(", "))}  ${flopRate(peak)}/s`, color: colour("--muted"), fontSize: 11 } },
      })),
      ...classes.map((name, i) => ({
        type: "scatter", name: plainText(name), z: 3, color: colour(FIXED[name] ?? `--class-${i % 8}`),
        symbolSize: (value) => 9 + 30 * Math.sqrt(value[2]),
        itemStyle: { opacity: 0.85, borderColor: colour("--page"), borderWidth: 1 },
        data: placed.filter((point) => point.kernel_class === name)
          .map((point) => [point.intensity, point.flops, point.share ?? 0, points.indexOf(point)]),
      })),
    ],
  }));
  tipsOf(chart, ({ seriesType, value }) => (seriesType === "scatter" ? pointWords(data, points[value[3]]) : null));
}

function pointWords(data, point) {
  const lines = [
    data.strings[point.name],
    `${point.kernel_class}${point.dtype ? `, ${point.dtype}` : ""}: ${time(point.total_ns)} a step in ${figure(point.calls)} calls`,
  ];
  if (point.flops) lines.push(`${flopRate(point.flops)}/s at ${figure(point.intensity)} FLOP per byte`);
  if (point.bandwidth) lines.push(`moves at least ${figure(point.bandwidth / 1e9)} GB/s`);
  lines.push(`${share(point.peak_share)} of its roof`, point.basis);
  return lines.filter(Boolean);
}

// Kernels that only move data have no place in a plane of FLOP: as bars of the bandwidth they reach.
function drawMoving(box, data) {
  const points = data.roofline.points.filter((point) => !(point.flops > 0) && point.bandwidth > 0).sort((a, b) => b.total_ns - a.total_ns);
  box.style.height = `${points.length * 24 + 56}px`;
  const { chart } = draw(box, (self) => {
    const left = narrow(self) ? 120 : 320;
    return {
      grid: { left, right: 60, top: 28, bottom: 8 },
      xAxis: axis({ type: "value", min: 0, max: 1, position: "top", axisLabel: { formatter: share } }),
      yAxis: axis({
        type: "category", inverse: true, data: points.map((point) => plainText(brief(data.strings[point.name]))), axisTick: { show: false },
        axisLabel: { width: left - 14, overflow: "truncate", hideOverlap: false, interval: 0 },
      }),
      series: [{
        type: "bar", barWidth: 13, data: points.map((point) => ({ value: point.peak_share, itemStyle: { color: colour(FIXED[point.kernel_class] ?? "--class-5") } })),
        label: { show: true, position: "right", color: colour("--muted"), fontSize: 11, formatter: ({ dataIndex }) => time(points[dataIndex].total_ns) },
      }],
    };
  });
  tipsOf(chart, ({ seriesType, dataIndex }) => (seriesType === "bar" ? pointWords(data, points[dataIndex]) : null));
}

function flopRate(value) {
  const [factor, unit] = [[1e15, "PFLOP"], [1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"], [1, "FLOP"]].find(([factor]) => value >= factor) ?? [1, "FLOP"];
  return `${figure(value / factor)} ${unit}`;
}
