// The arrows that open parts of the navigation have names.
document.addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll("nav details > summary")) {
    const page = summary.closest("li")?.querySelector("a");
    summary.setAttribute("aria-label", page ? `Pages of ${page.textContent.trim()}` : "More pages");
  }
});
