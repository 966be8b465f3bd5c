"""The explorer in headless Chromium, opened from disk, and the native command that its numbers are compared with."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = pathlib.Path(os.environ.get("PHASOR_EXPLORER", ROOT / "web" / "explorer.html"))
COMMAND = os.environ.get("PHASOR_COMMAND", str(ROOT / "build" / "release" / "bin" / "phasor"))
CHROMIUM = os.environ.get("PHASOR_CHROMIUM", "/usr/bin/chromium")
VIEWS = ["clocks", "table", "decay", "scalings", "layouts", "accuracy", "diagnose", "attention"]


class Command:
    """Runs the native command."""

    def __init__(self, folder):
        self.folder = folder
        self.written = 0

    def run(self, *arguments, code=0):
        words = [COMMAND, *(str(argument) for argument in arguments)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{words}: {done.stderr}"
        return done.stdout

    def json(self, *arguments, code=0):
        return json.loads(self.run(*arguments, "--json", code=code))

    def save(self, values):
        """Writes an array for the command and returns its path."""
        self.written += 1
        path = self.folder / f"{self.written}.npy"
        np.save(path, values)
        return path

    def array(self, verb, *arguments):
        """What a verb writes with -o."""
        self.written += 1
        path = self.folder / f"{self.written}.npy"
        self.run(verb, *arguments, "-o", path)
        return np.load(path)


class Explorer:
    """One browser page with the explorer, and what it printed and requested."""

    def __init__(self, page):
        self.page = page
        self.problems = []
        page.on("console", lambda message: message.type in ("error", "warning") and self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", self.on_request)

    def on_request(self, request):
        # Pictures are saved through blob: and data: addresses, which leave the page no more than file: does.
        if request.url.split(":")[0] not in ("file", "data", "blob", "about"):
            self.problems.append(f"network request: {request.url}")

    def open(self, view, **state):
        """Opens a deep link and waits until the view has drawn."""
        state = {"lang": "en", "theme": "light", **state}
        link = "&".join(f"{name}={value}" for name, value in state.items())
        self.page.goto("about:blank")
        self.page.goto(f"{PAGE.as_uri()}#/{view}?{link}")
        self.ready(view)

    def ready(self, view):
        self.page.wait_for_selector(f'main[data-view="{view}"][data-ready="true"]', timeout=30000)
        self.settle()

    def settle(self):
        """Two animation frames: updates run once a frame."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def read(self, name):
        """The text of the element that tests know by this name."""
        return self.page.locator(f'[data-test="{name}"]').inner_text()

    def number(self, name):
        return float(self.read(name).replace("\u2212", "-").split()[0])

    def set(self, name, value):
        """Types a value into the number field of a control, or selects it, or moves a slider."""
        field = self.page.locator(f'[data-control="{name}"]')
        if field.evaluate("element => element.tagName") == "SELECT":
            field.select_option(str(value))
        else:
            field.fill(str(value))
            field.dispatch_event("change")
        self.settle()

    def csv(self):
        """What the toolbar's button copies, as rows of fields."""
        self.page.locator('[data-test="copy-csv"]').click()
        self.settle()
        text = self.page.evaluate("() => navigator.clipboard.readText()")
        return [line.split(",") for line in text.strip().splitlines()]


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def context(browser):
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"], accept_downloads=True
    )
    yield context
    context.close()


@pytest.fixture
def explorer(context):
    """A page whose console and network stay silent."""
    explorer = Explorer(context.new_page())
    yield explorer
    explorer.page.close()
    assert explorer.problems == []


@pytest.fixture(scope="session")
def command(tmp_path_factory):
    return Command(tmp_path_factory.mktemp("command"))
