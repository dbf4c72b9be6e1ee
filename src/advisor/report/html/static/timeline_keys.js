// The timeline by keyboard, its legend, and the colour of text on a rectangle.
function timelineKey(event, { state, now, look, zoom, select, order }) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const span = state.to - state.from;
  const pan = (part) => look(state.from + span * part, state.to + span * part);
  const tracks = now().tracks;
  const [t, i] = state.selected ?? [0, -1];
  // The rectangle of a track that is nearest to a moment.
  const nearest = (track, ns) => {
    const at = track.start_ns.findIndex((start, k) => start + track.duration_ns[k] >= ns);
    return at < 0 ? track.start_ns.length - 1 : at;
  };
  const other = (way) => {
    const moment = state.selected ? tracks[t].start_ns[i] : state.from;
    let k = state.selected ? order.indexOf(t) + way : way > 0 ? 0 : order.length - 1;
    for (; k >= 0 && k < order.length; k += way) {
      if (tracks[order[k]].start_ns.length) return select(order[k], nearest(tracks[order[k]], moment));
    }
  };
  const next = (way) => {
    if (!state.selected) return other(1);
    const at = Math.min(Math.max(i + way, 0), tracks[t].start_ns.length - 1);
    select(t, at);
  };
  const actions = {
    ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), a: () => pan(-0.2), d: () => pan(0.2),
    "+": () => zoom(0.5), "=": () => zoom(0.5), w: () => zoom(0.5), "-": () => zoom(2), s: () => zoom(2),
    ArrowUp: () => other(-1), ArrowDown: () => other(1), ",": () => next(-1), ".": () => next(1),
    0: () => look(0, now().duration_ns), Home: () => look(0, now().duration_ns),
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

// Dark or white, whichever reads better on the colour "rgb(r, g, b)".
function inkOn(fill) {
  const [r, g, b] = (fill.match(/[\d.]+/g) ?? [0, 0, 0]).map((value) => (Number(value) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#101317" : "#ffffff";
}

// As much of a text as fits a width at 11 px, by counting: measuring thousands of texts takes longer than drawing them.
function fitted(text, width) {
  let room = width / 6.4;
  for (let i = 0; i < text.length; i++) {
    room -= text.charCodeAt(i) > 0x2e7f ? 2 : 1;
    if (room < 0) return `${text.slice(0, Math.max(i - 1, 0))}…`;
  }
  return text;
}

// What the colours mean: idle causes first, then what else occurs.
function timelineLegend(timelines) {
  const entries = new Map();
  const ordered = (timeline) => [...timeline.tracks].sort((a, b) => (b.kind === "idle") - (a.kind === "idle"));
  for (const timeline of timelines) {
    for (const track of ordered(timeline)) {
      for (const i of new Set(track.category)) {
        const category = timeline.categories[i];
        const label = track.kind === "idle" ? CAUSES[category] ?? `idle: ${category}` : category;
        if (!entries.has(label)) entries.set(label, categoryColour(track.kind, category, i));
      }
    }
  }
  const items = [...entries].map(([label, property]) => {
    const item = element("li");
    const swatch = element("span", "", "swatch");
    swatch.style.setProperty("--swatch", `var(${property})`);
    item.append(swatch, element("span", label));
    return item;
  });
  document.getElementById("timeline-legend").replaceChildren(...items);
}
