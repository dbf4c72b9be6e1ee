// Figures in words, as the page has them: `time`, `size`, `share`, `figure`.
const UNITS = [[3.6e12, "h"], [6e10, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

function scaled(value, units, digits) {
  const [factor, unit] = units.find(([factor]) => Math.abs(value) >= factor) ?? units.at(-1);
  return `${figure(value / factor, digits)} ${unit}`;
}

// At most so many significant digits, but all of the integer part.
function figure(value, digits = 3) {
  if (!Number.isFinite(value)) return "unknown";
  const whole = value === 0 ? 1 : Math.floor(Math.log10(Math.abs(value))) + 1;
  return Number(value.toFixed(Math.min(Math.max(digits - whole, 0), 12))).toLocaleString("en-US", { maximumFractionDigits: 12 });
}

const time = (ns, digits = 3) => scaled(ns, UNITS, digits);
const size = (bytes) => scaled(bytes, SIZES, 3);
const share = (part) => `${part > 0 && part < 0.001 ? "<0.1" : figure(part * 100, 2)} %`;

// A moment on an axis that shows `span`: the unit of the span, with the digits that tell neighbours apart.
function moment(ns, span) {
  const [factor, unit] = UNITS.find(([factor]) => span >= factor) ?? UNITS.at(-1);
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.max(span, 1) / factor)));
  return `${(ns / factor).toFixed(factor === 1 ? 0 : digits)} ${unit}`;
}

// A kernel's name without what all of them share, for places where only its start is shown.
const brief = (name) => name.replace(/^void /, "").replace(/at::native::|\(anonymous namespace\)::|\bat::(?=\w)/g, "");

// An element with text; text never becomes markup.
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
