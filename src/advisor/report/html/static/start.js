// Runs the page. A part that fails leaves the others whole: its figures stand in its table.
const CHARTS = { memory: drawMemory, samples: drawSamples, roofline: drawRoofline, moving: drawMoving, ranks: drawRanks, steps: drawSteps };

function attempt(what, start) {
  try {
    return start();
  } catch (error) {
    console.error(`advisor: ${what} could not be drawn:`, error);
    return null;
  }
}

function startContents() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target.id) : seen.delete(target.id);
    const first = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) id === first ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current");
  }, { rootMargin: "-10% 0px -60% 0px" });
  for (const id of links.keys()) watch.observe(document.getElementById(id));
}

function start() {
  document.documentElement.dataset.scripts = "";
  document.body.append(tip);
  const data = JSON.parse(document.getElementById("data").textContent);
  attempt("copying", startCopying);
  attempt("the tables", startTables);
  const timeline = data.timelines?.length ? attempt("the timeline", () => startTimeline(data)) : null;
  for (const figureBox of document.querySelectorAll("[data-chart]")) {
    const draws = CHARTS[figureBox.dataset.chart];
    if (draws) attempt(figureBox.dataset.chart, () => draws(figureBox.querySelector(".canvas"), data, Number(figureBox.dataset.index ?? 0)));
  }
  for (const button of document.querySelectorAll("button.show")) {
    if (!timeline?.has(button.dataset.finding)) continue;
    button.hidden = false;
    button.addEventListener("click", () => {
      timeline.highlight(button.dataset.finding);
      document.getElementById("timeline").scrollIntoView();
      timeline.box.focus({ preventScroll: true });
    });
  }
  attempt("the contents", startContents);
  if (document.getElementById("theme")) startTheme();
}
start();
