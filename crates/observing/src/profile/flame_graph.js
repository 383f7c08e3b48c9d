// A click on a box makes it as wide as the picture; a click on the first row goes back. The search colors boxes by their names.
"use strict";
(() => {
  const boxes = Array.from(document.querySelectorAll("g[data-x]"), (box) => ({
    box,
    start: Number(box.dataset.x),
    width: Number(box.dataset.w),
    row: Number(box.dataset.row),
    name: box.dataset.name,
    rect: box.querySelector("rect"),
    text: box.querySelector("text"),
  }));
  const whole = 1200;
  const show = (chosen) => {
    const scale = whole / chosen.width;
    for (const one of boxes) {
      const isAbove = one.row < chosen.row && one.start <= chosen.start + 1e-6 &&
        one.start + one.width >= chosen.start + chosen.width - 1e-6;
      const start = isAbove ? 0 : (one.start - chosen.start) * scale;
      const width = isAbove ? whole : one.width * scale;
      const isShown = isAbove || (one.row >= chosen.row && start > -0.01 && start + width < whole + 0.01);
      one.box.style.display = isShown ? "" : "none";
      one.rect.setAttribute("x", start);
      one.rect.setAttribute("width", Math.max(width - 0.5, 0.2));
      one.text.setAttribute("x", start + 3);
      const letters = Math.floor((width - 6) / 6.6);
      one.text.textContent = letters < 3 ? "" : one.name.length <= letters ? one.name : one.name.slice(0, letters - 1) + "…";
    }
  };
  // The boxes come from the outermost one inwards, so a box inside of one that was found adds nothing to the share.
  const search = (term) => {
    let covered = 0, end = -1;
    const all = boxes.length > 0 ? boxes[0].width : 1;
    const wanted = term.toLowerCase();
    for (const one of boxes) {
      const isFound = wanted !== "" && one.name.toLowerCase().includes(wanted);
      one.box.classList.toggle("found", isFound);
      if (isFound && one.start >= end - 1e-6) {
        covered += one.width;
        end = one.start + one.width;
      }
    }
    const share = (100 * covered / all).toFixed(1);
    document.getElementById("found").textContent = wanted === "" ? "" : `${share} % with "${term}"`;
  };
  const ask = () => {
    const term = window.prompt("Show the boxes whose name contains:", "");
    if (term !== null) {
      search(term.trim());
    }
  };
  const button = document.getElementById("search");
  button.addEventListener("click", ask);
  button.addEventListener("keydown", (event) => event.key === "Enter" && ask());
  document.addEventListener("keydown", (event) => event.key === "/" && (event.preventDefault(), ask()));
  for (const one of boxes) {
    one.box.addEventListener("click", () => show(one));
    one.box.addEventListener("keydown", (event) => event.key === "Enter" && show(one));
  }
})();
