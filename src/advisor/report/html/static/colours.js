// Colours for the canvas come from the style sheet, so that each has one home, and follow the theme.
const probe = element("span", "");
probe.hidden = true;
document.body.append(probe);
const known = new Map();

// The colour that a custom property has now, as rgb().
function colour(name) {
  if (!known.has(name)) {
    probe.style.color = `var(${name})`;
    known.set(name, getComputedStyle(probe).color);
  }
  return known.get(name);
}

const repaints = [];
function repaint() {
  known.clear();
  for (const paint of repaints) paint();
}

function startTheme() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
    repaint();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    show();
  });
  system.addEventListener("change", show);
  show();

  // Paper is light, and shows what is folded on the screen.
  let before = null;
  addEventListener("beforeprint", () => {
    if (before) return;
    before = { theme: root.dataset.theme, folded: [...document.querySelectorAll("main details:not([open])")] };
    for (const one of before.folded) one.open = true;
    root.dataset.theme = "light";
    repaint();
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    for (const one of before.folded) one.open = false;
    if (before.theme) root.dataset.theme = before.theme;
    else delete root.dataset.theme;
    before = null;
    repaint();
  });
}
