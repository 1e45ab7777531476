"""The site: built without a warning, complete, without dead links, and usable in a real browser."""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import warm_python

pytest.importorskip("sphinx")
playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.exhaustive
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="session")
def site(once) -> Path:
    """The folder of the built site; a warning is an error."""

    def build(folder: Path) -> str:
        words = ["-m", "sphinx", "-W", "--keep-going", "-q", ROOT / "docs", folder / "site"]
        done = warm_python.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return str(folder / "site")

    return Path(once("site", build))


class Page(HTMLParser):
    """The links of a page, and the places in it that a link may lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag's links and its place."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.add(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


@pytest.fixture(scope="session")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_no_link_inside_is_dead(site, pages) -> None:
    """Each link to a page, a place in one, a style or a script leads there."""
    dead = []
    checked = 0
    for path, page in pages.items():
        for link in page.links:
            target, place = urldefrag(link)
            if ":" in target or target.startswith("//"):
                continue
            checked += 1
            file = (path.parent / unquote(target.partition("?")[0])).resolve() if target else path
            there = pages.get(file)
            if not file.exists() or (place and there and unquote(place) not in there.places):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert checked > 10_000
    assert dead == []


def test_every_public_name_has_its_place_and_its_source(generator, pages, site) -> None:
    """The reference describes each name that a package offers, with a link to its code."""
    import api_pages

    homes = set(api_pages.home_of().values())
    places = {
        place
        for path, page in pages.items()
        if path.parent == site / "api"
        for place in page.places
    }
    assert sorted(homes - places) == []
    sources = {link for page in pages.values() for link in page.links if "_modules/" in link}
    named = {link.partition("#")[2].rpartition(".")[2] for link in sources}
    missing = {
        full
        for full in homes
        if isinstance(getattr(sys.modules[full.rpartition(".")[0]], full.rpartition(".")[2]), type)
        and full.rpartition(".")[2] not in named
    }
    assert missing == set()


def test_the_reference_and_the_pages_lead_to_each_other(pages, site) -> None:
    """From a callback's page to its signature, and back; from the guide to the methods."""
    page, reference = (
        pages[site / "callbacks/EarlyStopping.html"],
        pages[site / "api/callbacks.html"],
    )
    assert "../api/callbacks.html#earlystopping" in page.links
    assert "../callbacks/EarlyStopping.html" in reference.links
    guide = pages[site / "writing-a-callback.html"]
    assert "api/trainer_hooks.html#trainer_hooks.Hooks.on_train_batch_end" in guide.links


def test_signatures_lead_to_the_reference_of_torch_and_python(pages, site) -> None:
    """The inventories in the repository name the pages of others."""
    links = pages[site / "api/trainer_hooks.html"].links
    assert any(link.startswith("https://docs.pytorch.org/docs/stable/tensors") for link in links)
    assert any(link.startswith("https://docs.python.org/3/library/") for link in links)


@pytest.fixture(scope="module")
def address(site):
    """The address of the site on this machine: the search fetches pages, which a file cannot."""
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    handler = functools.partial(quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, address):
    """Open a page; in the end, nothing was written to the console and nothing asked elsewhere."""
    faults, asked, contexts = [], [], []

    def visit(name, width=1600, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(120_000)  # a busy machine takes long to draw
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address + name)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert faults == []
    assert [url for url in asked if not url.startswith((address, "data:"))] == []


def found(page, words: str) -> list[str]:
    """Type words into the search of a page, and return the links of the results in their order."""
    page.locator("input.sidebar-search").fill(words)
    page.locator("input.sidebar-search").press("Enter")
    page.get_by_text("Search finished").wait_for()
    # the summaries of the results are fetched, which leaving the page would break off
    page.wait_for_load_state("networkidle")
    links = page.locator("#search-results li > a").all()
    return [link.get_attribute("href") for link in links]


@in_a_browser
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("early stopping", "api/callbacks.html#trainer_hooks.callbacks.EarlyStopping"),
        ("resume", "checkpoints.html"),
        ("state_key", "api/trainer_hooks.html#trainer_hooks.Callback.state_key"),
        ("on_train_batch_end", "api/trainer_hooks.html#trainer_hooks.Hooks.on_train_batch_end"),
    ],
)
def test_the_search_finds_what_people_type(visit, words, wanted) -> None:
    """Typed into the field of a page, the words lead to a list with the right page near its top."""
    links = found(visit("index.html"), words)
    assert any(wanted in link for link in links[:8]), links[:8]


@in_a_browser
@pytest.mark.parametrize("words", ["early stopping", "Early Stopping", "EarlyStopping"])
def test_the_search_finds_a_callbacks_page_first(visit, words) -> None:
    """By the words of its name or by the name itself."""
    assert "callbacks/EarlyStopping.html" in found(visit("index.html"), words)[0]


@in_a_browser
def test_the_search_finds_the_pages_of_callbacks_by_the_words_of_their_names(visit) -> None:
    """It is no special treatment of one page."""
    for words, name in [("model checkpoint", "ModelCheckpoint"), ("nan guard", "NaNGuard")]:
        assert f"callbacks/{name}.html" in found(visit("index.html"), words)[0]


@in_a_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize(
    "name",
    [
        "index.html", "callbacks/EarlyStopping.html", "checkpoints.html", "api/loggers.html",
        "learn/2-a-callback.html", "side-by-side/transformers.html",
    ],
)  # fmt: skip
def test_a_page_can_be_read_by_everybody(visit, name, width, scheme) -> None:
    """Nothing runs out of the window, and axe finds no fault: contrast, landmarks, names."""
    page = visit(name, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    violations = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in violations] == []


@in_a_browser
def test_the_keyboard_reaches_the_content_at_once(visit) -> None:
    """The first Tab is on the link that skips the list of pages."""
    page = visit("checkpoints.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").strip() == "Skip to content"
