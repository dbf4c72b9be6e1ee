// Charts on a canvas: one way to make them, so that theme, size and text are the same in all.
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";

// options(chart) gives what ECharts draws; it is asked again when the theme or the width changes.
function draw(box, options) {
  const chart = echarts.init(box, null, { renderer: "canvas" });
  const paint = () => {
    const option = options(chart);
    chart.setOption({ animation: false, textStyle: { fontFamily: FONT, color: colour("--ink") }, ...option }, { notMerge: true });
    chart.getZr().flush();  // now, not with the next frame: paper has none
  };
  paint();
  repaints.push(paint);
  let width = box.clientWidth;
  new ResizeObserver(() => {
    if (!box.clientWidth || box.clientWidth === width) return;
    width = box.clientWidth;
    chart.resize();
    paint();
  }).observe(box);
  return { chart, paint };
}

function axis(more) {
  return {
    axisLine: { lineStyle: { color: colour("--strong-line") } },
    axisTick: { lineStyle: { color: colour("--strong-line") } },
    splitLine: { lineStyle: { color: colour("--line") } },
    nameTextStyle: { color: colour("--muted"), fontSize: 12 },
    ...more,
    axisLabel: { color: colour("--muted"), fontSize: 12, hideOverlap: true, ...more.axisLabel },
  };
}

// An axis of bytes from 0 whose marks are whole powers of two.
function bytesAxis(highest, more) {
  const interval = 2 ** Math.ceil(Math.log2(Math.max(highest, 4) / (more.splitNumber ?? 5)));
  return axis({ type: "value", min: 0, max: Math.ceil(highest / interval) * interval || interval, interval, ...more, axisLabel: { formatter: size, ...more.axisLabel } });
}
const highestOf = (curves) => curves.reduce((most, curve) => curve.value.reduce((a, b) => Math.max(a, b), most), 0);

// ECharts' own box beside the pointer: for figures only, never for names out of a recording.
function figuresTip(words) {
  return {
    trigger: "axis",
    renderMode: "richText",
    confine: true,
    backgroundColor: colour("--raised"),
    borderColor: colour("--strong-line"),
    borderWidth: 1,
    textStyle: { color: colour("--ink"), fontSize: 12 },
    axisPointer: { lineStyle: { color: colour("--strong-line") } },
    formatter: words,
  };
}

const plainText = (text) => String(text).replace(/[{}|]/g, " ");  // what ECharts would read as its own markup
const narrow = (chart) => chart.getWidth() < 640;
