// What is under the pointer, as text beside it.
const tip = element("div", undefined, "tip");
tip.hidden = true;
tip.setAttribute("aria-hidden", "true");

// lines: the first is the name of the thing.
function showTip(event, lines) {
  const [name, ...rest] = lines;
  tip.replaceChildren(element("strong", name), ...rest.map((line) => element("span", line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const beside = event.clientX + 14 + width > innerWidth ? event.clientX - width - 14 : event.clientX + 14;
  const below = event.clientY + 16 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 16;
  tip.style.transform = `translate(${Math.max(beside, 4)}px, ${Math.max(below, 4)}px)`;
}

function hideTip() {
  tip.hidden = true;
}

// Shows, for each thing of a chart under the pointer, what `words(params)` says of it.
function tipsOf(chart, words) {
  const at = (params) => {
    const lines = words(params);
    if (lines) showTip(params.event.event, lines);
    else hideTip();
  };
  chart.on("mousemove", at);
  chart.on("mouseover", at);
  chart.on("mouseout", hideTip);
  chart.on("globalout", hideTip);
}
