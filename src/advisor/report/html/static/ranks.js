// Heat maps of ranks: by part of the step, and by step.
function heatMap(box, { rows, columns, cells, lows, highs, least, words }) {
  const { chart } = draw(box, (self) => {
    const small = narrow(self);
    const turned = small || columns.length > 14;
    const head = turned ? 92 : 46;
    box.style.height = `${Math.min(Math.max(rows.length * 24, 48), 900) + head + 8}px`;
    if (self.getHeight() !== box.clientHeight) self.resize();
    return {
      grid: { left: small ? 84 : 116, right: 14, top: head, bottom: 4 },
      xAxis: axis({ type: "category", data: columns.map(plainText), position: "top", splitLine: { show: false }, axisLabel: { rotate: turned ? 50 : 0, interval: columns.length > 24 ? "auto" : 0, hideOverlap: false, width: turned ? 110 : 92, overflow: turned ? "truncate" : "break", fontSize: columns.length > 6 && !turned ? 10 : 11, lineHeight: 13 } }),
      yAxis: axis({ type: "category", data: rows, inverse: true, splitLine: { show: false }, axisLabel: { interval: "auto", fontSize: 11 } }),
      series: [{
        type: "custom", encode: { x: 0, y: 1 },
        data: cells.flatMap((row, y) => row.map((ns, x) => [x, y, ns ?? -1])),
        renderItem: (params, api) => {
          const [width, height] = api.size([1, 1]);
          const [x, y] = api.coord([api.value(0), api.value(1)]);
          const column = api.value(0);
          const ns = api.value(2);
          const spread = Math.max(highs[column] - lows[column], least, 1);
          const level = ns < 0 ? 0 : Math.min(Math.max((ns - lows[column]) / spread, 0), 1);
          const base = { type: "rect", shape: { x: x - width / 2 + 1, y: y - height / 2 + 1, width: width - 2, height: height - 2 } };
          const cell = [{ ...base, style: { fill: colour("--panel") } }, { ...base, style: { fill: colour("--part-dataloader"), opacity: 0.08 + 0.87 * level } }];
          if (width > 54 && height > 14 && ns > 0) {
            cell.push({ type: "text", silent: true, x, y, style: { text: time(ns), fill: level > 0.6 ? "#101317" : colour("--ink"), align: "center", verticalAlign: "middle", font: `11px ${FONT}` } });
          }
          return { type: "group", children: cell };
        },
      }],
    };
  });
  tipsOf(chart, ({ value }) => (value ? words(value[0], value[1], value[2]) : null));
}

const boundsOf = (cells, columns) => ({
  lows: columns.map((_, x) => Math.min(...cells.map((row) => row[x] ?? Infinity))),
  highs: columns.map((_, x) => Math.max(...cells.map((row) => row[x] ?? 0), 0)),
});

function drawRanks(box, { ranks }) {
  const rows = ranks.rank.map((rank, i) => gpuName({ rank, device: ranks.device[i] }));
  const kept = ranks.columns.map((_, x) => x).filter((x) => ranks.cells.some((row) => row[x] > 0));
  const cells = ranks.cells.map((row) => kept.map((x) => row[x]));
  const columns = kept.map((x) => CAUSES[ranks.columns[x]] ?? ranks.columns[x]);
  const least = 0.03 * Math.max(...cells.map((row) => row[0]), 1);  // a difference below that of a step is none
  const words = (x, y, ns) => [`${rows[y]}: ${columns[x]}`, time(ns), columns[0] === "step" && cells[y][0] ? `${share(ns / cells[y][0])} of its step` : ""].filter(Boolean);
  heatMap(box, { rows, columns, cells, ...boundsOf(cells, columns), least, words });
}

function drawSteps(box, { step_map }) {
  const rows = step_map.rank.map((rank) => (rank === null ? "the run" : `rank ${rank}`));
  const columns = step_map.number.map((number, x) => `step ${number}${step_map.steady[x] ? "" : "*"}`);
  const some = step_map.steady.some(Boolean);
  const all = step_map.cells.flatMap((row) => row.filter((ns, x) => ns !== null && (step_map.steady[x] || !some)));
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const words = (x, y, ns) => [`${rows[y]}, ${columns[x]}`, ns < 0 ? "not recorded" : time(ns), step_map.steady[x] ? "" : "left out: not a steady step"].filter(Boolean);
  heatMap(box, { rows, columns, cells: step_map.cells, lows: columns.map(() => low), highs: columns.map(() => high), least: 0.03 * high, words });
}
