"""The site: built without a warning, complete, without dead links, and usable in a real browser."""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import warm_python

pytest.importorskip("sphinx")
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
def test_the_search_finds_what_people_type(visit) -> None:
    """Typed into the field of a page, the words lead to a list with the right page at its top."""
    links = found(visit("index.html"), "early stopping")
    assert "callbacks/EarlyStopping.html" in links[0]
    reference = "api/callbacks.html#trainer_hooks.callbacks.EarlyStopping"
    assert any(reference in link for link in links[:8]), links[:8]


FIRST = {
    "resume": "checkpoints.html#resuming",
    "early stopping": "callbacks/EarlyStopping.html",
    "Early Stopping": "callbacks/EarlyStopping.html",
    "EarlyStopping": "callbacks/EarlyStopping.html",
    "model checkpoint": "callbacks/ModelCheckpoint.html",
    "nan guard": "callbacks/NaNGuard.html",
    "checkpoint": "checkpoints.html",
    "mixed precision": "precision-and-devices.html#precision",
    "gradient accumulation": "optimizers.html#accumulation-and-clipping",
    "learning rate": "optimizers.html",
    "multiple gpus": "distributed.html",
    "callbacks": "writing-a-callback.html",
    "tensorboard": "loggers.html#tensorboard",
    "entry point": "plugins.html#the-factory-and-the-entry-point",
}
"""The words that people search for most, and the first hit of each.

These and the words below are titles of the guides of Lightning, Keras and Composer.
"""

RECIPES = {
    "resume": "recipes.html#resume-a-run-also-in-a-queue",
    "early stopping": "recipes.html#early-stopping",
    "mixed precision": "recipes.html#mixed-precision",
    "gradient accumulation": "recipes.html#gradient-accumulation-and-clipping",
    "learning rate": "recipes.html#two-learning-rates",
    "tensorboard": "recipes.html#tensorboard",
}
"""The recipes of these words, which are among the first three hits."""

AMONG_THREE = {
    "fine-tuning": "recipes.html#fine-tune-from-a-checkpoint",
    "transfer learning": "recipes.html#freeze-a-backbone-and-train-it-later",
    "save model": "checkpoints.html",
    "load checkpoint": "module.html#loading-a-checkpoint",
    "model summary": "callbacks/ModelSummary.html",
    "lr scheduler": "optimizers.html",
    "learning rate warmup": "recipes.html#learning-rate-warm-up-cosine-decay",
    "cosine annealing": "recipes.html#learning-rate-warm-up-cosine-decay",
    "learning rate finder": "tuner.html#the-learning-rate",
    "batch size finder": "tuner.html#the-batch-size",
    "gradient clipping": "optimizers.html#accumulation-and-clipping",
    "manual optimization": "optimizers.html#manual-optimization",
    "gan": "optimizers.html#manual-optimization",
    "ddp": "distributed.html",
    "fsdp": "distributed.html#fsdp-weights-in-shards",
    "multi-node": "distributed.html",
    "slurm": "recipes.html#resume-a-run-also-in-a-queue",
    "gpu": "precision-and-devices.html#devices",
    "out of memory": "precision-and-devices.html#out-of-memory",
    "torch.compile": "precision-and-devices.html#speed",
    "profiler": "profiling.html",
    "progress bar": "callbacks/ProgressBar.html",
    "logging": "logging-metrics.html",
    "metrics": "logging-metrics.html",
    "wandb": "loggers.html#weights-biases-mlflow",
    "class weights": "recipes.html#class-weights",
    "label smoothing": "recipes.html#label-smoothing",
    "mixup": "recipes.html#mixup",
    "ema": "recipes.html#average-the-weights-ema",
    "stochastic weight averaging": "callbacks/StochasticWeightAveraging.html",
    "cross-validation": "cross-validation.html",
    "hyperparameters": "module.html#hyperparameters",
    "hyperparameter tuning": "sweeps-and-configs.html",
    "config": "command-line.html",
    "predict": "verbs.html#predict",
    "inference": "recipes.html#predict-a-whole-set",
    "validation": "verbs.html#validate-and-test",
    "reproducibility": "reproducibility.html",
    "transformers": "recipes.html#a-model-of-transformers",
    "push to hub": "recipes.html#push-to-the-hugging-face-hub",
    "notebook": "notebooks.html",
    "data module": "data.html#datamodule",
    "training loop": "own-loop.html",
    "debug": "recipes.html#debug-a-model",
    "pruning": "callbacks/ModelPruning.html",
    "onnx": "module.html#methods-to-call",
    "hooks": "hooks.html",
    "install": "install.html",
    "lightning": "coming-from-lightning.html",
    "state_key": "api/trainer_hooks.html#trainer_hooks.Callback.state_key",
    "on_train_batch_end": "api/trainer_hooks.html#trainer_hooks.Hooks.on_train_batch_end",
}
"""Further words, each with a page or a recipe that is among its first three hits."""

WITHOUT_ENTRY = {
    "resume after kill": "recipes.html",
    "save best weights": "recipes.html",
    "freeze backbone": "recipes.html",
    "schedulers": "optimizers.html",
    "exact resume": "checkpoints.html",
}
"""Words that the index has not, found in the text: a guide comes before the pages on the design."""

_HITS = """words => {
    const query = Search._parseQuery(words);
    const hits = Search._performSearch(...query).reverse();
    return hits.slice(0, 3).map(([page, title, place]) => [`${page}.html${place}`, title]);
}"""
"""What the field of the search runs, without the summaries, which fetch each page."""


@in_a_browser
def test_the_search_leads_to_recipe_and_page(visit) -> None:
    """By the search's own ranking."""
    page = visit("search.html?q=resume")
    page.get_by_text("Search finished").wait_for()
    page.wait_for_load_state("networkidle")
    hits = {words: page.evaluate(_HITS, words) for words in FIRST | AMONG_THREE | WITHOUT_ENTRY}
    wrong = {words: hits[words] for words in FIRST if hits[words][0][0] != FIRST[words]}
    for words, wanted in (*RECIPES.items(), *AMONG_THREE.items(), *WITHOUT_ENTRY.items()):
        if wanted not in [place for place, _ in hits[words]]:
            wrong[words] = hits[words]
    assert wrong == {}
    # a section is listed once, by its own title
    assert hits["resume"][0][1] == "Checkpoints > Resuming"
    assert all(len({place for place, _ in found}) == len(found) for found in hits.values())


READ = [
    "callbacks/EarlyStopping.html", "checkpoints.html", "api/loggers.html", "recipes.html",
    "learn/2-a-callback.html", "side-by-side/transformers.html",
]  # fmt: skip
"""Pages of each kind: axe looks at the contrast of each word, which takes seconds for long ones."""


@in_a_browser
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        *(("index.html", *window) for window in product((360, 1600), ("light", "dark"))),
        *((name, *window) for name in READ for window in ((360, "dark"), (1600, "light"))),
    ],
)
def test_a_page_can_be_read_by_everybody(visit, name, width, scheme) -> None:
    """Nothing runs out of the window, and axe finds no fault: contrast, landmarks, names."""
    page = visit(name, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    violations = axe.Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in violations] == []


@in_a_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_front_page_fits_on_a_screen_or_two(visit, scheme) -> None:
    """It has the install line, short code, the picture of the scheme, and few links."""
    page = visit("index.html", scheme=scheme)
    assert page.locator("article picture:visible, article img:visible").count() == 1
    assert f"front-{scheme}" in page.locator("article img:visible").get_attribute("src")
    install, code = page.locator("article pre").all()
    assert install.inner_text().startswith("pip install")
    lines = [line for line in code.inner_text().splitlines() if line.strip()]
    assert 10 <= len(lines) <= 15
    links = page.locator("article section a:not(.headerlink)").all()
    assert 6 <= len(links) <= 12
    assert page.evaluate("document.documentElement.scrollHeight") < 2 * 900


@in_a_browser
@pytest.mark.parametrize("width", [390, 1600])
@pytest.mark.parametrize("name", ["trainer.html", "checkpoints.html"])
def test_the_name_of_an_option_does_not_break(visit, name, width) -> None:
    """Each name in the first column of a table is on a line; the table scrolls in itself."""
    page = visit(name, width)
    names = page.locator("td:first-child code.literal")
    lines = names.evaluate_all("all => all.map(name => name.getClientRects().length)")
    assert len(lines) > 10
    assert set(lines) == {1}
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@in_a_browser
def test_a_telephone_with_a_keyboard_reaches_all_pages(visit) -> None:
    """The closed list of pages gets no Tab; Enter on its button opens it, Escape closes it."""
    page = visit("checkpoints.html", 390)
    focus = "document.activeElement.getAttribute('class') || document.activeElement.tagName"
    for _ in range(6):
        page.keyboard.press("Tab")
        if "nav-overlay-icon" in page.evaluate(focus):
            break
        assert page.evaluate("!document.activeElement.closest('aside')")
    assert "nav-overlay-icon" in page.evaluate(focus)
    field = page.locator("input.sidebar-search")
    assert not field.is_visible()
    page.keyboard.press("Enter")
    field.wait_for(state="visible")
    page.keyboard.press("Escape")
    field.wait_for(state="hidden")
    page.keyboard.press("Space")
    assert "callbacks/EarlyStopping.html" in found(page, "early stopping")[0]


@in_a_browser
def test_the_keyboard_reaches_the_content_at_once(visit) -> None:
    """The first Tab is on the link that skips the list of pages."""
    page = visit("checkpoints.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").strip() == "Skip to content"
