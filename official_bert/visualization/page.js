/* Script shared by all pages; each page's own script follows. */
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children); // strings become text, never markup
  return made;
}

/** Returns the RGB values of a colour of the style sheet in the current theme. */
function rgbOf(name) {
  const probe = element("span");
  document.body.append(probe);
  probe.style.color = `var(${name})`;
  const numbers = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return numbers;
}

function showTheme() {
  const isDark = getComputedStyle(document.body).colorScheme === "dark" ||
    (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  byId("theme").textContent = isDark ? "Light" : "Dark";
  byId("theme").dataset.next = isDark ? "light" : "dark";
}

/**
 * Sets up the theme button and shows the notes.
 * @param {Function} repaint redraws everything with theme colours.
 */
function setUpFrame(repaint) {
  const change = () => { showTheme(); repaint(); };
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = byId("theme").dataset.next;
    change();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", change);
  byId("notes").append(...data.notes.map((note) => element("li", {}, note)));
  byId("notes").hidden = !data.notes.length;
  showTheme();
}
