"""The explorer in headless Chromium, opened from disk, and the native command that its numbers are compared with."""

import csv
import io
import json
import os
import pathlib
import subprocess
import urllib.parse

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
        # Pictures are saved through blob: and data: addresses, which stay inside the page.
        if request.url.split(":")[0] not in ("file", "data", "blob"):
            self.problems.append(f"network request: {request.url}")

    def visit(self, view, **state):
        """Opens a deep link and waits until the view has drawn. The page is loaded once; later links only change the view."""
        link = urllib.parse.urlencode({"lang": "en", "theme": "light", **state})
        self.page.goto(f"{PAGE.as_uri()}#/{view}?{link}")
        self.page.wait_for_selector(f'main[data-view="{view}"][data-ready="true"]', timeout=30000)
        self.settle()

    def open(self, view, **state):
        """The same for a link without mistakes; a text that is missing in a language is an error too."""
        self.visit(view, **state)
        assert self.message() == ""

    def settle(self):
        """Updates run once in an animation frame: waits for two."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def at(self, name):
        return self.page.locator(f'[data-test="{name}"]')

    def read(self, name):
        return self.at(name).inner_text()

    def number(self, name):
        """A shown number with all its digits."""
        return float(self.at(name).get_attribute("data-value"))

    def control(self, name):
        return self.page.locator(f'[data-control="{name}"]')

    def set(self, name, value):
        """Types into a field, or selects an item."""
        field = self.control(name)
        if field.evaluate("element => element.tagName") == "SELECT":
            field.select_option(str(value))
        else:
            field.fill(str(value))
            field.press("Enter")
        self.settle()

    def move(self, name, key, times=1):
        """Moves a slider by a key of the keyboard."""
        slider = self.page.locator(f'[data-slider="{name}"]')
        slider.focus()
        for _ in range(times):
            self.page.keyboard.press(key)
        self.settle()

    def csv(self, figure):
        """What a picture's button copies: {column: [fields]}."""
        self.at(f"figure-{figure}").locator('[data-test="copy-csv"]').click()
        self.settle()
        rows = list(csv.reader(io.StringIO(self.page.evaluate("() => navigator.clipboard.readText()"))))
        assert len({len(row) for row in rows}) == 1, "every row has as many fields as the head"
        return {name: [row[at] for row in rows[1:]] for at, name in enumerate(rows[0])}

    def numbers(self, figure):
        """The same with every field a number."""
        return {name: np.array(fields, float) for name, fields in self.csv(figure).items()}

    def table(self, name):
        """The texts of a table's rows."""
        return self.at(name).locator("tbody tr").evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.innerText))")

    def message(self):
        """The error that the page shows, or an empty text."""
        return self.page.locator("#alert").inner_text() if self.page.locator("#alert").is_visible() else ""


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def context(browser):
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    yield context
    context.close()


@pytest.fixture(scope="session")
def shared(context):
    return Explorer(context.new_page())


@pytest.fixture
def explorer(shared):
    """The page, whose console and network must stay silent."""
    shared.problems.clear()
    yield shared
    shared.page.set_viewport_size({"width": 1440, "height": 900})
    assert shared.problems == []


@pytest.fixture(scope="session")
def command(tmp_path_factory):
    return Command(tmp_path_factory.mktemp("command"))
