"""Hooks of mkdocs.yml: links to files outside of docs, and the formulas' renderer as files of the site."""

import pathlib
import posixpath
import re
import shutil

from mkdocs.plugins import get_plugin_logger

LOG = get_plugin_logger("phasor")
KATEX = pathlib.Path("/usr/share/javascript/katex")
LICENCES = {"libjs-katex": "KATEX-LICENCE.txt", "fonts-katex": "KATEX-FONTS-LICENCE.txt"}

FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def on_config(config):
    """Debian's KaTeX must be installed; without it formulas would be shown as LaTeX."""
    if not (KATEX / "katex.min.js").is_file():
        raise SystemExit(f"docs: {KATEX}/katex.min.js: no such file. Run: apt-get install libjs-katex fonts-katex")
    return config


def outside(target, page, root):
    """The path in the repository of a link that leaves docs; None for any other link."""
    path, _, anchor = target.partition("#")
    if "://" in target or not path.startswith("."):
        return None
    joined = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), path))
    if joined.startswith("docs/") or joined.startswith(".."):
        return None
    if not (root / joined).exists():
        LOG.warning("%s links to %s, but there is no %s in the repository", page, target, joined)
    return joined + ("#" + anchor if anchor else "")


def reference_list(files):
    """Links to the pages that were made from the sources: they exist in the site, not on a code host."""
    titles = {"cpp": "C++", "c": "C", "python": "Python", "": "Command line"}
    groups = {}
    for file in files.documentation_pages():
        if file.src_uri.startswith("reference/"):
            folder, _, name = file.src_uri.removeprefix("reference/").rpartition("/")
            groups.setdefault(folder, []).append(f"[{name.removesuffix('.md').replace('_', ' ')}]({file.src_uri})")
    return "\n".join(f"- {titles[folder]}: {', '.join(sorted(links))}" for folder, links in sorted(groups.items()))


def on_page_markdown(markdown, page, config, files):
    """A link to a file outside of docs leads to the code host if there is one, else its text stays, with the path."""
    root = pathlib.Path(config["docs_dir"]).parent
    markdown = markdown.replace("<!-- pages of the reference -->", reference_list(files))

    def replaced(match):
        path = outside(match[3], page.file.src_uri, root)
        if path is None:
            return match[0]
        if config["repo_url"]:
            return f"{match[1]}[{match[2]}]({config['repo_url'].rstrip('/')}/blob/main/{path})"
        return f'<span class="phasor-path" title="{path}">{match[2]}</span>'

    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(replaced, markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join(parts) + LINK.sub(replaced, markdown[at:])


def on_post_build(config):
    """KaTeX, its fonts and their licences become files of the site."""
    target = pathlib.Path(config["site_dir"]) / "assets" / "katex"
    (target / "fonts").mkdir(parents=True, exist_ok=True)
    for name in ("katex.min.js", "katex.min.css"):
        shutil.copyfile(KATEX / name, target / name)
    for font in (KATEX / "fonts").glob("*.woff2"):
        shutil.copyfile(font, target / "fonts" / font.name)
    for package, name in LICENCES.items():
        shutil.copyfile(f"/usr/share/doc/{package}/copyright", target / name)


def on_post_page(output, page, config):
    """The theme looks for a sitemap beside each page in another language and finds none: it needs no such links, since
    the menu of languages has its own."""
    return re.sub(r'<link rel="alternate"[^>]*hreflang[^>]*>', "", output)
