"""What every view shares: links, languages, themes, pictures and tables that leave the page, the keyboard."""

import re
import struct

import pytest
from conftest import PAGE, VIEWS

# For each view a link with values that are not the defaults.
STATES = {
    "clocks": {"position": 77, "distance": 9, "pairs": 5, "base": 100, "vectors": "equal"},
    "table": {"family": "", "head_dim": 16, "base": 1000, "first": 64, "count": 64},
    "decay": {"head_dim": 24, "longest": 128, "tokens": 32, "step": 2, "compare": "true", "base2": 100},
    "scalings": {"context": 16384, "factor": 3, "methods": "none,yarn", "shown": "wavelengths"},
    "layouts": {"token": 4, "position": 6, "base": 100, "step": 5},
    "accuracy": {"position": 54321, "head_dim": 16, "pair": 2, "angles": "float32,bfloat16"},
    "diagnose": {"example": "base"},
    "attention": {"tokens": 9, "head_dim": 16, "seed": 4, "causal": "false", "first": "t5", "second": "shaw", "query": 5},
}


def shown_values(explorer):
    """Each control's value."""
    return explorer.page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("main [data-control]")].map(element =>
             [element.dataset.control, element.type === "checkbox" ? String(element.checked)
              : element.getAttribute("aria-pressed") ?? element.value]))"""
    )


def test_page_is_one_small_file():
    text = PAGE.read_text()
    assert len(PAGE.read_bytes()) < 2_000_000
    assert not re.search(r'(?:src|href)="(?!data:|#)', text), "a part is outside the file"


@pytest.mark.parametrize("view", VIEWS)
def test_link_restores_the_view(explorer, view):
    explorer.open(view, **STATES[view])
    values = shown_values(explorer)
    for name, value in STATES[view].items():
        if name in ("methods", "angles"):  # chips: one button for each item
            pressed = {key.removeprefix(f"{name}-") for key, now in values.items() if key.startswith(f"{name}-") and now == "true"}
            assert pressed == set(value.split(","))
        else:
            assert values[name] == str(value), name
    # The page writes the same link for what it shows.
    explorer.page.wait_for_timeout(200)
    link = explorer.page.url
    explorer.page.reload()
    explorer.page.wait_for_selector(f'main[data-view="{view}"][data-ready="true"]')
    explorer.settle()
    assert shown_values(explorer) == values
    assert explorer.page.url == link


@pytest.mark.parametrize(
    ("view", "state"),
    [("clocks", {"position": 99999999}), ("accuracy", {"position": 1.5}), ("attention", {"first": "bert"}), ("table", {"family": "Llama 9"})],
)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_link_with_a_wrong_value_is_refused(explorer, view, state, lang):
    explorer.visit(view, lang=lang, **state)
    assert str(next(iter(state.values()))) in explorer.message()
    assert "\n" not in explorer.message()


def test_changes_are_written_to_the_link(explorer):
    explorer.open("clocks")
    explorer.set("position", 321)
    explorer.page.wait_for_function("() => location.hash.includes('position=321')")
    explorer.page.locator("#to-decay").click()
    explorer.page.wait_for_selector('main[data-view="decay"]')
    explorer.page.go_back()
    explorer.page.wait_for_selector('main[data-view="clocks"]')
    assert explorer.control("position").input_value() == "321"


@pytest.mark.parametrize("view", VIEWS)
def test_every_picture_leaves_the_page(explorer, view):
    explorer.open(view, **STATES[view])
    figures = explorer.page.locator("figure:visible").evaluate_all("all => all.map(one => one.dataset.test)")
    assert figures
    for figure in figures:
        columns = explorer.csv(figure.removeprefix("figure-"))
        assert len(columns) > 1 and len(next(iter(columns.values()))) > 1
        with explorer.page.expect_download() as download:
            explorer.at(figure).locator('[data-test="save-png"]').click()
        data = download.value.path().read_bytes()
        assert download.value.suggested_filename == f"phasor-{view}-{figure.removeprefix('figure-')}.png"
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", data[16:24])
        assert width > 300 and height > 300 and len(data) > 3000


# Names and words of code that stay as they are in Chinese.
KEPT = re.compile(
    r"config\.json|phasor \w+|head_dim|rotary_dim|float32|float16|bfloat16|base|factor|softmax|Hugging Face|Transformer-XL|"
    r"GPT-\w+|Apache License 2\.0|WebAssembly|JavaScript|English|Phasor|RoPE|RoFormer|LLaMA|Llama[ \d.\w-]*|YaRN|LongRoPE|NTK|DeBERTa|"
    r"ALiBi|TUPE|Shaw|xPos|CSV|PNG|npy|cos|sin|Qwen[\w.-]*|Mistral[\w .-]*|Phi[\w .-]*|Gemma[\w .-]*|GLM[\w .-]*|Falcon[\w .-]*"
)


@pytest.mark.parametrize("view", VIEWS)
def test_chinese_view_has_no_english(explorer, view):
    explorer.open(view, **{"lang": "zh", **STATES[view]})
    assert explorer.page.evaluate("() => document.documentElement.lang") == "zh-Hans"
    visible = explorer.page.evaluate(
        """() => {
             const found = [document.title];
             const walk = element => {
               if (element.closest('[lang="en"], pre, option, .drop-name, #announcer, [data-test="version"]')) return;
               for (const name of ["aria-label", "title", "placeholder", "aria-valuetext"]) found.push(element.getAttribute(name) ?? "");
               for (const node of element.childNodes) {
                 if (node.nodeType === 3) found.push(node.textContent);
                 else if (node.nodeType === 1 && node.checkVisibility()) walk(node);
               }
             };
             walk(document.body);
             return found;
           }"""
    )
    english = [text.strip() for text in visible if re.search(r"[A-Za-z]{3,}", KEPT.sub("", text))]
    assert english == []
    assert any("\u4e00" <= character <= "\u9fff" for text in visible for character in text)


def test_switches_of_language_and_theme(explorer):
    explorer.open("decay")
    background = "() => getComputedStyle(document.body).backgroundColor"
    light, title = explorer.page.evaluate(background), explorer.page.inner_text("h1")
    explorer.page.locator('[data-control="theme-dark"]').check(force=True)
    explorer.settle()
    assert explorer.page.evaluate(background) != light
    explorer.page.locator('[data-control="lang-zh"]').check(force=True)
    explorer.settle()
    assert explorer.page.inner_text("h1") != title
    explorer.page.wait_for_function("() => location.hash.includes('lang=zh') && location.hash.includes('theme=dark')")


FOCUSED = """() => {
  const element = document.activeElement;
  return element.dataset.control ?? element.dataset.slider ?? element.dataset.test ?? element.id;
}"""


@pytest.mark.parametrize("view", VIEWS)
def test_tab_reaches_every_control(explorer, view):
    explorer.open(view)
    wanted = set(
        explorer.page.evaluate(
            """() => [...document.querySelectorAll("main input, main select, main button, main textarea, main summary")]
                 .filter(element => element.checkVisibility() && !element.disabled)
                 .map(element => element.dataset.control ?? element.dataset.slider ?? element.dataset.test ?? element.id)"""
        )
    )
    assert wanted
    explorer.page.locator("#skip").focus()
    reached = set()
    for _ in range(120):
        explorer.page.keyboard.press("Tab")
        focused = explorer.page.evaluate(FOCUSED)
        reached.add(focused)
        if focused == "about":  # the last button of the page
            break
    assert wanted - reached == set()


def test_keyboard_path(explorer):
    """From the top of the page to another view, its slider and a copied table, with Tab, arrows and Enter alone."""
    explorer.open("clocks")
    keyboard = explorer.page.keyboard
    explorer.page.evaluate("() => navigator.clipboard.writeText('')")
    explorer.page.locator("#skip").focus()

    def tab_to(name):
        for _ in range(80):
            keyboard.press("Tab")
            if explorer.page.evaluate(FOCUSED) == name:
                return
        raise AssertionError(f"Tab does not reach {name}")

    tab_to("to-clocks")
    for _ in range(4):
        keyboard.press("ArrowDown")
    keyboard.press("Enter")
    explorer.page.wait_for_selector('main[data-view="layouts"][data-ready="true"]')
    tab_to("step")
    explorer.page.keyboard.press("Tab")
    before = explorer.read("step-text")
    keyboard.press("ArrowRight")
    explorer.settle()
    assert explorer.read("step-text") != before
    tab_to("next")
    keyboard.press("Enter")
    explorer.settle()
    assert explorer.read("step-text").startswith("3.")
    tab_to("copy-csv")
    keyboard.press("Enter")
    explorer.settle()
    assert explorer.page.evaluate("() => navigator.clipboard.readText()").startswith("row,feature_0")
