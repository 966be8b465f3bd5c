"""Accessibility by axe-core in both themes, screenshots at two widths, and measurements that are printed."""

import json
import pathlib

import axe_playwright_python
import pytest
from conftest import PAGE, ROOT, VIEWS, Explorer

AXE = (pathlib.Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
SHOTS = ROOT / "build" / "web-screenshots"
# A view as a reader who looks around sees it.
STATES = {"diagnose": {"example": "layout"}, "layouts": {"step": 4}}


@pytest.mark.parametrize("view", VIEWS)
def test_accessible_in_both_themes(explorer, view):
    for theme, lang in (("light", "en"), ("dark", "zh")):
        explorer.open(view, **{**STATES.get(view, {}), "theme": theme, "lang": lang})
        if not explorer.page.evaluate("() => 'axe' in window"):
            explorer.page.evaluate(AXE)
        found = explorer.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
        severe = [
            {"rule": one["id"], "help": one["help"], "places": [node["html"][:160] for node in one["nodes"]]}
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert severe == [], json.dumps(severe, indent=1)


@pytest.mark.parametrize("view", VIEWS)
def test_fits_the_width(explorer, view):
    SHOTS.mkdir(parents=True, exist_ok=True)
    for width in (390, 1440):
        explorer.page.set_viewport_size({"width": width, "height": 900})
        for theme, lang in (("light", "en"), ("dark", "zh")):
            explorer.open(view, **{**STATES.get(view, {}), "theme": theme, "lang": lang})
            explorer.settle()
            explorer.page.screenshot(path=SHOTS / f"{view}-{width}-{theme}-{lang}.png", full_page=True, animations="disabled")
            assert explorer.page.evaluate("() => document.documentElement.scrollWidth") <= width, "the page scrolls sideways"


def test_measurements(context, capsys):
    """Printed for the documents, never asserted: other programs use this machine too. The main thread's own time
    depends on them less than the clock does."""
    explorer = Explorer(context.new_page())
    session = context.new_cdp_session(explorer.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy():
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    explorer.page.goto(f"{PAGE.as_uri()}#/clocks?pairs=64&lang=en")
    explorer.page.wait_for_selector('main[data-ready="true"]')
    first = explorer.page.evaluate("() => new Promise(done => requestAnimationFrame(() => done(performance.now())))")
    loaded = busy()
    positions, seconds = explorer.page.evaluate(
        """() => new Promise(done => {
             const slider = document.querySelector('[data-slider="position"]');
             const start = performance.now();
             let position = 0;
             const step = now => {
               if (now - start >= 2000) return done([position, (now - start) / 1000]);
               slider.value = String(++position);
               slider.dispatchEvent(new Event("input", {bubbles: true}));
               requestAnimationFrame(step);
             };
             requestAnimationFrame(step);
           })"""
    )
    dragged = busy() - loaded
    explorer.page.close()
    assert explorer.problems == []
    assert positions > 0
    with capsys.disabled():
        print(
            f"\npage {PAGE.stat().st_size / 2**20:.2f} MB; first picture after {first:.0f} ms (main thread {1000 * loaded:.0f} ms); "
            f"{positions / seconds:.0f} positions a second with 64 pairs (main thread {1000 * dragged / positions:.1f} ms each)"
        )
