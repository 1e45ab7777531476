// What furo's and Sphinx's markup leaves out for those who cannot see the page, or use a keyboard.
document.addEventListener("DOMContentLoaded", () => {
  const set = (selector, name, value) =>
    document.querySelectorAll(selector).forEach((element) => element.setAttribute(name, value));
  set("p.caption[role=heading]", "aria-level", "2");
  set("aside.sidebar-drawer", "aria-label", "All pages");
  set("aside.toc-drawer", "aria-label", "On this page");
  // the buttons of a narrow window are labels of hidden boxes, which no key reaches
  document.querySelectorAll(".nav-overlay-icon, .toc-overlay-icon").forEach((label) => {
    const box = label.control;
    const button = document.createElement("button");
    button.className = `${label.className} drawer-button`;
    button.setAttribute("aria-label", box.getAttribute("aria-label"));
    button.append(...label.childNodes);
    const show = () => button.setAttribute("aria-expanded", box.checked);
    button.addEventListener("click", () => box.click());
    box.addEventListener("change", show);
    show();
    label.replaceWith(button);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    document.querySelectorAll(".sidebar-toggle:checked").forEach((box) => box.click());
  });
  // Sphinx writes a long signature as a list of definitions without terms
  document.querySelectorAll("dt.sig dl").forEach((list) => {
    const block = document.createElement("span");
    for (const item of [...list.children]) {
      const line = document.createElement("span");
      line.className = "sig-argument";
      line.append(...item.childNodes);
      block.append(line);
    }
    list.replaceWith(block);
  });
  // what scrolls sideways can be reached with Tab
  set("pre, .table-wrapper", "tabindex", "0");
});
