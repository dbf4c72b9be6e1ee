// The timeline: tracks of rectangles that zoom and pan, a finding's intervals, one selected event and its launches.
const MEMORY_HEIGHT = 70;
const SHORTEST = 200;  // ns: no closer look than this

function startTimeline(data) {
  const figureBox = document.querySelector("[data-chart=timeline]");
  if (!figureBox) return null;
  const box = figureBox.querySelector(".canvas");
  const section = figureBox.closest("section");
  const panel = section.querySelector(".details");
  const pick = { rank: document.getElementById("timeline-rank"), finding: document.getElementById("timeline-finding") };
  const state = { shown: 0, from: 0, to: 0, finding: "", selected: null };
  const now = () => data.timelines[state.shown];
  state.to = now().duration_ns;
  section.querySelector(".controls").hidden = false;

  const gutter = () => (box.clientWidth < 640 ? 6 : 176);
  let place = layout(now(), false);
  const arrange = () => {
    place = layout(now(), gutter() < 100);
    const extra = Object.keys(now().memory).length ? MEMORY_HEIGHT + 34 : 0;
    const height = `${place.height + extra + 80}px`;
    if (box.style.height !== height) box.style.height = height;
  };
  arrange();

  const option = (chart) => {
    arrange();
    if (chart.getHeight() !== box.clientHeight) chart.resize();
    const timeline = now();
    Object.assign(box.dataset, { from: Math.round(state.from), to: Math.round(state.to) });
    const left = gutter();
    const top = left > 100 ? 26 : 36;
    const curves = Object.entries(timeline.memory);
    const x = (more) => axis({
      type: "value", min: 0, max: timeline.duration_ns, splitLine: { show: false },
      axisLabel: { formatter: (ns) => moment(ns, state.to - state.from), showMinLabel: true }, ...more,
    });
    const grids = [{ left, right: 14, top, height: place.height, show: false }];
    const axes = [x({ position: "top" })];
    const ys = [{ type: "value", min: 0, max: place.height, inverse: true, show: false }];
    if (curves.length) {
      grids.push({ left, right: 14, top: top + place.height + 22, height: MEMORY_HEIGHT });
      axes.push(x({ gridIndex: 1, axisLabel: { show: false }, axisTick: { show: false } }));
      ys.push(bytesAxis(highestOf(curves.map(([, curve]) => curve)), { gridIndex: 1, splitNumber: 2, axisLabel: { fontSize: 11 }, position: left > 100 ? "left" : "right" }));
      if (left < 100) ys[1].axisLabel.inside = true;
    }
    const zoom = { xAxisIndex: axes.map((_, i) => i), filterMode: "none", startValue: state.from, endValue: state.to, minValueSpan: SHORTEST };
    return {
      grid: grids,
      xAxis: axes,
      yAxis: ys,
      graphic: names(left, top, curves.length),
      dataZoom: [
        { ...zoom, type: "inside", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: "shift", moveOnMouseMove: true, preventDefaultMouseMove: false, throttle: 30 },
        {
          ...zoom, type: "slider", bottom: 8, left, right: 14, height: 22, showDataShadow: false, brushSelect: true, throttle: 30,
          labelFormatter: "", borderColor: colour("--line"), fillerColor: "rgba(120,140,180,0.25)", handleStyle: { color: colour("--raised"), borderColor: colour("--strong-line") },
          moveHandleStyle: { color: colour("--strong-line") }, backgroundColor: colour("--panel"),
        },
      ],
      series: [
        { type: "custom", silent: true, data: place.tracks.map((_, i) => [0, i]), renderItem: stripe, clip: true, z: 1 },
        { type: "custom", silent: true, data: rectangles(place), renderItem: rectangle(timeline), progressive: 0, encode: { x: [0, 1], y: 2 }, clip: true, z: 2 },
        { type: "custom", silent: true, data: marked(timeline), renderItem: overlay, encode: { x: [0, 1], y: 2 }, clip: true, z: 1 },
        { type: "custom", silent: true, data: chosen(timeline), renderItem: overlay, encode: { x: [0, 1], y: 2 }, clip: true, z: 3 },
        ...curves.map(([device, curve]) => ({
          type: "line", name: `GPU ${device}`, xAxisIndex: 1, yAxisIndex: 1, step: "end", symbol: "none", silent: true,
          lineStyle: { width: 1.5 }, areaStyle: { opacity: 0.15 }, color: colour(`--class-${Number(device) % 8}`),
          data: pairs(curve, timeline.duration_ns),
        })),
      ],
    };
  };

  const names = (left, top, memory) => {
    const label = (text, y, i) => ({
      type: "text", silent: true, left: left > 100 ? 8 : 10, top: y, id: `name-${i}`,
      style: { text: plainText(text), fill: colour("--muted"), font: `12px ${FONT}`, width: left > 100 ? left - 16 : box.clientWidth - 30, overflow: left > 100 ? "break" : "truncate", lineHeight: 14, height: 30, lineOverflow: "truncate" },
    });
    const made = place.tracks.map(({ track, head, y, row, rows }, i) =>
      label(left > 100 ? track.label.replace(" (", "\n(") : track.label, top + (left > 100 ? y + Math.max((Math.min(rows * row, 34) - (track.label.length > 27 ? 30 : 14)) / 2, -4) : head), i));
    if (memory && left > 100) made.push(label("memory allocated", top + place.height + 4, "memory"));
    return made;
  };

  const stripe = (params, api) => {
    const { x, y, width } = params.coordSys;
    const { y: top, rows, row } = place.tracks[api.value(1)];
    return { type: "rect", shape: { x, y: y + top - 3, width, height: rows * row + 4, r: 3 }, style: { fill: colour("--panel") } };
  };

  const rectangle = (timeline) => {
    const marks = marksOf(timeline, state.finding);
    return (params, api) => {
      const area = params.coordSys;
      const [from, to, t, i] = [api.value(0), api.value(1), api.value(4), api.value(5)];
      if (to < state.from || from > state.to) return null;
      const x0 = Math.max(api.coord([from, 0])[0], area.x);
      const x1 = Math.min(Math.max(api.coord([to, 0])[0], x0 + 0.8), area.x + area.width);
      if (x1 <= x0) return null;
      const track = timeline.tracks[t];
      const category = track.category[i];
      const fill = colour(categoryColour(track.kind, timeline.categories[category], category));
      const dim = marks && !isMarked(marks, t, from, to);
      const gap = x1 - x0 > 3 ? 0.6 : 0;
      const shown = {
        type: "rect",
        shape: { x: x0, y: area.y + api.value(2), width: x1 - x0 - gap, height: api.value(3), r: x1 - x0 > 6 ? 2 : 0 },
        style: { fill, opacity: dim ? 0.22 : track.count[i] > 1 ? 0.45 + 0.55 * (track.covered_ns[i] / track.duration_ns[i]) : 1 },
      };
      if (x1 - x0 > 34) {
        const text = track.kind === "idle" ? CAUSES[timeline.categories[category]] ?? "idle" : brief(data.strings[track.name[i]] ?? "");
        shown.textContent = {
          type: "text",
          style: { text: fitted(plainText(text), x1 - x0 - 8), fill: inkOn(fill), font: `11px ${FONT}`, opacity: dim ? 0.4 : 1 },
        };
        shown.textConfig = { position: "insideLeft", distance: 4 };
      }
      return shown;
    };
  };

  // Behind the rectangles: bounds of the step on the GPU, and marks of the finding.
  const marked = (timeline) => {
    const rows = [];
    for (const ns of [timeline.gpu_start_ns, timeline.gpu_end_ns]) {
      if (ns > 0 && ns < timeline.duration_ns) rows.push([ns, ns, 0, place.height - GAP, "bound"]);
    }
    for (const [t, spans] of marksOf(timeline, state.finding) ?? []) {
      const { y, rows: depth, row } = place.tracks[t];
      for (const [from, to] of spans) rows.push([from, to, y - 4, depth * row + 6, "mark"]);
    }
    return kinds(rows);
  };
  // Before them: the selected event and its launches.
  const chosen = (timeline) => {
    const rows = [];
    if (state.selected) {
      const [t, i] = state.selected;
      const track = timeline.tracks[t];
      for (const k of linksOf(timeline, t, i)) {
        const { from_track, from_ns, from_depth, to_track, to_rectangle } = timeline.links;
        const target = timeline.tracks[to_track[k]];
        const [a, b] = [place.tracks[from_track[k]], place.tracks[to_track[k]]];
        rows.push([from_ns[k], target.start_ns[to_rectangle[k]], topOf(a, from_depth[k]) + a.row - 2, topOf(b, target.depth[to_rectangle[k]]), "link"]);
      }
      rows.push([track.start_ns[i], track.start_ns[i] + track.duration_ns[i], topOf(place.tracks[t], track.depth[i]), place.tracks[t].row - 2, "selected"]);
    }
    return kinds(rows);
  };
  const kinds = (rows) => rows.map(([from, to, top, height, kind]) => [from, to, top, height, KINDS.indexOf(kind)]);

  const overlay = (params, api) => {
    const area = params.coordSys;
    const x0 = api.coord([api.value(0), 0])[0];
    const x1 = api.coord([api.value(1), 0])[0];
    const kind = KINDS[api.value(4)];
    const top = area.y + api.value(2);
    if (kind === "link") {
      const shape = { x1: x0, y1: top, x2: x1, y2: area.y + api.value(3), cpx1: x0, cpy1: (top + area.y + api.value(3)) / 2, cpx2: x1, cpy2: (top + area.y + api.value(3)) / 2 };
      return { type: "bezierCurve", shape, style: { stroke: colour("--ink"), fill: null, lineWidth: 1.2 } };
    }
    if (x1 < area.x || x0 > area.x + area.width) return null;
    const shape = { x: Math.max(x0, area.x - 2), y: top, width: Math.max(Math.min(x1, area.x + area.width + 2) - Math.max(x0, area.x - 2), 1.5), height: api.value(3) };
    if (kind === "bound") return { type: "line", shape: { x1: x0, y1: top, x2: x0, y2: top + api.value(3) }, style: { stroke: colour("--strong-line"), lineDash: [4, 4] } };
    if (kind === "mark") return { type: "rect", shape, style: { fill: colour("--mark"), opacity: 0.26 } };
    return { type: "rect", shape, style: { fill: null, stroke: colour("--ink"), lineWidth: 2 } };
  };

  const { chart, paint } = draw(box, option);
  const say = () => {
    if (!state.selected) return;
    const [name, ...rest] = describe(now(), data.strings, ...state.selected);
    const launches = linksOf(now(), ...state.selected).map((k) => {
      const delay = now().tracks[now().links.to_track[k]].start_ns[now().links.to_rectangle[k]] - now().links.from_ns[k];
      return `began ${time(delay)} after its launch`;
    });
    panel.replaceChildren(element("strong", name), element("span", [...rest, ...launches.slice(0, 1)].join("; ")));
  };
  const select = (t, i) => {
    state.selected = [t, i];
    const track = now().tracks[t];
    const [from, to] = [track.start_ns[i], track.start_ns[i] + track.duration_ns[i]];
    if (to < state.from || from > state.to) look((from + to - (state.to - state.from)) / 2, (from + to + (state.to - state.from)) / 2);
    else paint();
    say();
  };
  // Shows from `from` to `to`, as far as there is something.
  const look = (from, to) => {
    const whole = now().duration_ns;
    const span = Math.min(Math.max(to - from, SHORTEST), whole);
    state.from = Math.min(Math.max(from, 0), whole - span);
    state.to = state.from + span;
    paint();
  };
  const zoom = (factor) => {
    const middle = (state.from + state.to) / 2;
    const half = ((state.to - state.from) * factor) / 2;
    look(middle - half, middle + half);
  };
  const highlight = (fingerprint) => {
    state.finding = fingerprint;
    if (pick.finding) pick.finding.value = fingerprint;
    for (const card of document.querySelectorAll(".finding")) card.classList.toggle("chosen", card.dataset.fingerprint === fingerprint);
    const marks = marksOf(now(), fingerprint);
    if (!marks) return paint();
    const spans = [...marks.values()].flat();
    const [first, last] = [Math.min(...spans.map(([from]) => from)), Math.max(...spans.map(([, to]) => to))];
    look(first - (last - first) * 0.1, last + (last - first) * 0.1);
    const listed = now().highlights[fingerprint];
    const words = listed.basis === "change" ? "what the fix changes" : "what the evidence names";
    panel.replaceChildren(element("strong", data.findings.find((one) => one.fingerprint === fingerprint)?.title ?? ""),
      element("span", `${(listed.intervals || spans.length).toLocaleString("en-US")} intervals are marked: ${words}.`));
  };

  chart.on("datazoom", () => {
    const zoomed = chart.getOption().dataZoom[0];
    state.from = zoomed.startValue;
    state.to = zoomed.endValue;
    Object.assign(box.dataset, { from: Math.round(state.from), to: Math.round(state.to) });
  });
  const under = ({ offsetX, offsetY }) => {
    if (!chart.containPixel({ gridIndex: 0 }, [offsetX, offsetY])) return null;
    const [ns, y] = chart.convertFromPixel({ gridIndex: 0 }, [offsetX, offsetY]);
    return rectangleAt(place, ns, y, (4 * (state.to - state.from)) / (chart.getWidth() - gutter()));
  };
  const surface = chart.getZr();
  surface.on("click", (event) => {
    const found = under(event);
    if (found) select(...found);
  });
  surface.on("mousemove", (event) => {
    const found = event.event.buttons ? null : under(event);
    if (found) showTip(event.event, describe(now(), data.strings, ...found));
    else hideTip();
    surface.setCursorStyle(found ? "pointer" : "grab");
  });
  surface.on("globalout", hideTip);
  box.addEventListener("keydown", (event) => timelineKey(event, { state, now, look, zoom, select, order: place.order }));
  section.querySelector(".zoom").addEventListener("click", ({ target }) => {
    if (target.dataset.zoom === "all") look(0, now().duration_ns);
    else if (target.dataset.zoom) zoom(target.dataset.zoom === "in" ? 0.5 : 2);
  });
  pick.finding?.addEventListener("change", () => highlight(pick.finding.value));
  pick.rank?.addEventListener("change", () => {
    Object.assign(state, { shown: Number(pick.rank.value), selected: null });
    look(0, now().duration_ns);
    highlight(state.finding);
  });
  timelineLegend(data.timelines);
  return { highlight, has: (fingerprint) => Boolean(marksOf(now(), fingerprint)), box };
}
const KINDS = ["bound", "mark", "link", "selected"];
