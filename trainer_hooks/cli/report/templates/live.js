// Follows the runs: asks for the page again, and takes over what has changed in it. What the reader
// has chosen, opened and zoomed stays.
const PAUSE = 1000;
let version = null;

// what a script draws is drawn anew by it; all else is exchanged
const isDrawnByScript = (section) => section.querySelector("#runs-table, #tools, figure.chart") !== null;
const titleOf = (figure) => figure.querySelector("figcaption").textContent;

function exchange(section, next) {
  if (section.innerHTML === next.innerHTML) return;
  const opened = [...section.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent);
  section.replaceChildren(...next.childNodes);
  for (const details of section.querySelectorAll("details")) {
    if (opened.includes(details.querySelector("summary").textContent)) details.open = true;
  }
}

// figures are known by their titles: those that are there keep their zoom
function takeFigures(section, next) {
  const present = new Map([...section.querySelectorAll("figure.chart")].map((figure) => [titleOf(figure), figure]));
  const holder = section.querySelector(".charts");
  for (const figure of next.querySelectorAll("figure.chart")) {
    const shown = present.get(titleOf(figure));
    present.delete(titleOf(figure));
    if (shown) shown.dataset.chart = figure.dataset.chart;
    else { holder.append(figure); addFigure(figure); }
  }
  present.forEach(removeFigure);
  // the tables beside them, as that of the starts
  const tables = [...section.querySelectorAll(".scroll")];
  const wanted = [...next.querySelectorAll(".scroll")];
  if (tables.length !== wanted.length) return;
  tables.forEach((table, index) => exchange(table, wanted[index]));
}

function takeOver(next) {
  const parts = [...document.querySelectorAll("main > section")];
  const wanted = [...next.querySelectorAll("main > section")];
  // a part that comes or goes, and the first comparison, take the script of another page
  if (parts.map((part) => part.id).join() !== wanted.map((part) => part.id).join()) return location.reload();
  Object.assign(data, JSON.parse(next.getElementById("data").textContent));
  parts.forEach((part, index) => {
    if (part.querySelector("#runs-table")) renewTable();
    else if (isDrawnByScript(part)) takeFigures(part, wanted[index]);
    else exchange(part, wanted[index]);
  });
  document.title = next.title;
  document.querySelector("h1").textContent = next.querySelector("h1").textContent;
  for (const figure of drawn) draw(figure);
  if (byId("tools")) filterFigures();
}

async function follow() {
  const status = byId("live");
  try {
    const headers = version === null ? {} : { "If-None-Match": version };
    const answer = await fetch(location.href.split("#")[0], { headers, cache: "no-store" });
    if (answer.status === 200) {
      const text = await answer.text();
      const isFirst = version === null;
      version = answer.headers.get("ETag");
      takeOver(new DOMParser().parseFromString(text, "text/html"));
      if (!isFirst) status.textContent = `Follows the runs; changed at ${new Date().toLocaleTimeString("en-GB")}.`;
    } else if (answer.status !== 304) {
      status.textContent = await answer.text();
    } else if (!status.textContent.startsWith("Follows")) {
      status.textContent = "Follows the runs.";
    }
  } catch {
    status.textContent = "The command has ended: the page stays as it is.";
  }
  setTimeout(follow, PAUSE);
}

follow();
