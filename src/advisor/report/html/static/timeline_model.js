// A timeline as rows of pixels and rectangles with a place; nothing here draws.
const ROW = { idle: 28, ranges: 17, host: 16, collectives: 20, stream: 20 };
const GAP = 9;
const HEAD = 15;  // height of a track's name where there is no room for it at the left
const PARTS = ["dataloader", "host-sync", "launch", "python", "memory-management", "unexplained"];
const CAUSES = {
  dataloader: "idle: data loading", "host-sync": "idle: host synchronisation", launch: "idle: kernel launches",
  python: "idle: Python between launches", "memory-management": "idle: memory management", unexplained: "idle: unexplained",
};
const FIXED = {
  "CUDA call": "--host-call", operator: "--host", "Python frame": "--host", range: "--range", communication: "--part-communication",
  "memory copy": "--part-copy", "memory set": "--part-copy", "CUDA graph": "--class-5", unknown: "--part-unexplained",
  "matrix multiply": "--class-0", convolution: "--class-0", attention: "--class-1", elementwise: "--class-2", optimizer: "--class-4",
  reduction: "--class-3", normalisation: "--class-6", softmax: "--class-5", "copy or cast": "--class-7", "layout conversion": "--class-7",
};

// Custom property of a category's colour.
function categoryColour(kind, category, i) {
  if (kind === "idle") return PARTS.includes(category) ? `--part-${category}` : "--part-unexplained";
  return FIXED[category] ?? `--class-${i % 8}`;
}

// Where each track lies: `y` of its first row, `row` height of a row, `rows`. What the GPU waits for comes first, in one row.
function layout(timeline, heads) {
  const tracks = timeline.tracks.map((track) => {
    const rows = track.kind === "idle" ? 1 : Math.max(track.depths, 1);
    return { track, row: ROW[track.kind] ?? 18, rows, head: 0, y: 0 };
  });
  let y = 0;
  const order = [...tracks].sort((a, b) => (b.track.kind === "idle") - (a.track.kind === "idle"));
  for (const place of order) {
    place.head = y;
    place.y = y + (heads ? HEAD : 0);
    y = place.y + place.rows * place.row + GAP;
  }
  return { tracks, order: order.map((place) => tracks.indexOf(place)), height: Math.max(y, 20) };
}

const topOf = (place, depth) => place.y + (place.track.kind === "idle" ? 0 : depth * place.row);

// One array a rectangle, as the chart takes it: start, end, top, height, track, row of the track.
function rectangles({ tracks }) {
  const all = [];
  tracks.forEach((place, t) => {
    const { start_ns, duration_ns, depth } = place.track;
    for (let i = 0; i < start_ns.length; i++) {
      all.push([start_ns[i], start_ns[i] + duration_ns[i], topOf(place, depth[i]), place.row - 2, t, i]);
    }
  });
  return all;
}

// For every track a sorted list of [start, end] that a finding marks; null without a finding.
function marksOf(timeline, fingerprint) {
  const marked = fingerprint ? timeline.highlights[fingerprint] : null;
  if (!marked || !marked.start_ns.length) return null;
  const byTrack = new Map();
  marked.start_ns.forEach((start, i) => {
    const t = marked.track[i];
    if (!byTrack.has(t)) byTrack.set(t, []);
    byTrack.get(t).push([start, start + marked.duration_ns[i]]);
  });
  return byTrack;
}

// Whether a mark of the track meets the interval; marks are sorted and do not overlap.
function isMarked(marks, t, start, end) {
  const spans = marks.get(t) ?? [];
  let [low, high] = [0, spans.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle][1] > start) high = middle;
    else low = middle + 1;
  }
  return low < spans.length && spans[low][0] < end;
}

// Track and row of the rectangle at a moment and a height; of narrow ones the nearest that is at most `reach` ns away.
function rectangleAt({ tracks }, ns, y, reach) {
  const t = tracks.findIndex((place) => y >= place.y && y < place.y + place.rows * place.row);
  if (t < 0) return null;
  const { track, row, y: top } = tracks[t];
  const depth = track.kind === "idle" ? null : Math.floor((y - top) / row);
  let best = null;
  let least = reach;
  for (let i = 0; i < track.start_ns.length; i++) {
    if (depth !== null && track.depth[i] !== depth) continue;
    const away = Math.max(track.start_ns[i] - ns, ns - track.start_ns[i] - track.duration_ns[i], 0);
    if (away < least || (away === 0 && best === null)) [best, least] = [[t, i], away];
  }
  return best;
}

// What there is to say about a rectangle, its name first.
function describe(timeline, strings, t, i) {
  const track = timeline.tracks[t];
  const category = timeline.categories[track.category[i]];
  const idle = track.kind === "idle";
  const lines = [idle ? CAUSES[category] ?? `idle: ${category}` : strings[track.name[i]] ?? ""];
  if (idle && strings[track.name[i]] && strings[track.name[i]] !== category) lines.push(strings[track.name[i]]);
  lines.push(`${time(track.duration_ns[i])}, from ${time(track.start_ns[i], 4)}`);
  if (track.count[i] > 1) {
    lines.push(`${track.count[i].toLocaleString("en-US")} neighbours drawn as one, ${time(track.covered_ns[i])} of it covered; the longest is named`);
  }
  lines.push(idle ? track.label : `${category}, ${track.label}`);
  return lines;
}

// Launches that lead to a rectangle, or that a call on the host makes: indices into `timeline.links`.
function linksOf(timeline, t, i) {
  const { from_track, from_ns, from_depth, to_track, to_rectangle } = timeline.links;
  const track = timeline.tracks[t];
  const found = [];
  for (let k = 0; k < from_track.length && found.length < 200; k++) {
    const leads = to_track[k] === t && to_rectangle[k] === i;
    const made = from_track[k] === t && from_depth[k] === track.depth[i] &&
      from_ns[k] >= track.start_ns[i] && from_ns[k] < track.start_ns[i] + track.duration_ns[i];
    if (leads || made) found.push(k);
  }
  return found;
}
