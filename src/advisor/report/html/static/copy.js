// Buttons that copy a snippet. A page opened from disk may have no clipboard interface: then by selection.
async function copyText(source) {
  const text = source.textContent;
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(source);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return document.execCommand("copy");
  }
}

function startCopying() {
  const said = element("div", "", "sr");
  said.setAttribute("role", "status");
  document.body.append(said);
  for (const button of document.querySelectorAll("button[data-copies]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const done = await copyText(document.getElementById(button.dataset.copies));
      button.textContent = done ? "Copied" : "Select and copy";
      button.classList.toggle("done", done);
      said.textContent = done ? "Copied" : "Could not copy; the code is selected";
      setTimeout(() => {
        button.textContent = "Copy";
        button.classList.remove("done");
        said.textContent = "";
      }, 2000);
    });
  }
}
