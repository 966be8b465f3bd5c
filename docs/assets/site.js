// Renders the formulas of a page. KaTeX is a file of this site: nothing comes from another server.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".arithmatex")) {
    // The text is \(...\) within a line and \[...\] on its own.
    const text = element.textContent.trim();
    katex.render(text.slice(2, -2), element, {displayMode: text.startsWith("\\["), throwOnError: true});
  }
});
