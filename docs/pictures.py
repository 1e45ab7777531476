"""The pictures of the pages, from real runs of the tutorial's programs: bars, trees, curves.

A terminal is emulated, and its screen drawn as SVG, light and dark; the run report is a PNG of the
page in a browser. Times and rates differ from run to run, so a picture is made anew only if its
words do, without their numbers.
"""

from __future__ import annotations

import csv
import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyte
    from rich.text import Text

FOLDER = Path(__file__).parent
PICTURES = FOLDER / "static" / "pictures"
THEMES = ("light", "dark")

REPORT_WIDTH = 1060
"""Pixels: wide enough for two charts side by side, and no wider, which would wrap the folder."""

_FILE = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SNAP = b"\x1b]2;the picture is taken\x07"
"""A title of the terminal: it shows nothing on the screen."""

_BARS = """
import os, sys, time
from digits import Digits, loaders
from trainer_hooks import Callback, Trainer, seed_everything
from trainer_hooks.callbacks import RichProgressBar, TQDMProgressBar

class Picture(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step > 70:
            time.sleep(0.1)  # the bar is drawn again after a while
        if trainer.global_step == 80:
            shown = trainer.progress_bar_callback
            getattr(shown, "main_progress_bar", shown).refresh()
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(1, b"\\x1b]2;the picture is taken\\x07")
            time.sleep(60)

seed_everything(7)
bar = RichProgressBar() if sys.argv[1] == "rich" else TQDMProgressBar()
trainer = Trainer(
    max_epochs=5, log_every_n_steps=10, callbacks=[bar, Picture()], default_root_dir=sys.argv[1]
)
trainer.fit(Digits(), *loaders())
"""

_TREE = """
from digits import Digits
from plateau import StopOnPlateau
from trainer_hooks import Trainer

Trainer(callbacks=[StopOnPlateau()]).describe_hooks(Digits(), "fit")
"""

_COMPARED = """
import itertools, torch
from digits import Digits, loaders
from trainer_hooks import Trainer, seed_everything

class Wide(Digits):
    def __init__(self, lr, width):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
        )

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)

for lr, width in itertools.product((0.0003, 0.003, 0.03), (16, 64)):
    seed_everything(7)
    trainer = Trainer(max_epochs=4, default_root_dir="compared", enable_progress_bar=False)
    trainer.fit(Wide(lr, width), *loaders())
"""


def pictures() -> dict[str, str | bytes]:
    """Return each picture by its file's name."""
    chromium()  # if there is none, say so before the programs run
    return {**terminal_pictures(), **report_pictures()}


def terminal_pictures() -> dict[str, str]:
    """Run the programs, and return the pictures of what they print, and of their losses."""
    made: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_programs(folder)
        for kind in ("tqdm", "rich"):
            command = [sys.executable, "bars.py", kind]
            made |= _drawn(
                f"bar-{kind}", terminal(folder, command, lines=24, columns=112), "train.py"
            )
        tree = terminal(folder, [sys.executable, "tree.py"], lines=200)
        made |= _drawn("describe-hooks", _cut(tree), "trainer.describe_hooks()")
        _train(folder, "whole")
        _train_killed(folder)
        last = [
            str(_last_checkpoint(folder / run).relative_to(folder)) for run in ("whole", "killed")
        ]
        words = ["-m", "trainer_hooks", "checkpoint", "diff", *last, "--ignore", "paths"]
        made |= _drawn(
            "checkpoint-diff",
            terminal(folder, [sys.executable, *words], lines=40),
            "trainer-hooks checkpoint diff A B --ignore paths",
        )
        _check_equal(folder)
        whole, killed = _losses(folder / "whole"), _losses(folder / "killed")
        for theme in THEMES:
            made[f"front-{theme}.svg"] = front_picture(whole, killed, 100, theme)
    return made


def report_pictures() -> dict[str, bytes]:
    """Return the first screen of a resumed run's report and of several runs' by a browser."""
    browser_path = chromium()
    from playwright.sync_api import sync_playwright

    made = {}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as play:
        folder = Path(name)
        _write_programs(folder)
        _train_killed(folder)
        (folder / "compared.py").write_text(_COMPARED, encoding="utf-8")
        report = ["-m", "trainer_hooks", "report"]
        for words in (
            [*report, "killed", "-o", "report.html"],
            ["compared.py"],
            [*report, "compared", "--monitor", "val_acc", "-o", "compared.html"],
        ):
            command = [sys.executable, *words]
            subprocess.run(command, cwd=folder, env=_environ(), capture_output=True, check=True)
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for theme in THEMES:
            page = browser.new_page(
                viewport={"width": REPORT_WIDTH, "height": 900}, color_scheme=theme
            )
            for name, file, parts in (
                ("run-report", "report.html", ("header", "#overview", "#curves")),
                ("runs-compared", "compared.html", ("header", "#comparison", "#parallel")),
            ):
                page.goto((folder / file).as_uri())
                for figure in page.locator(f"{parts[-1]} figure.chart").all():
                    figure.scroll_into_view_if_needed()  # a chart is drawn when it is seen
                    figure.locator(".uplot").first.wait_for()
                page.evaluate("scrollTo(0, 0)")
                box = page.locator(parts[-1]).bounding_box()
                assert box is not None
                height = box["y"] + box["height"] + 12
                png = page.screenshot(
                    full_page=True, animations="disabled",
                    clip={"x": 0, "y": 0, "width": REPORT_WIDTH, "height": height},
                )  # fmt: skip
                texts = [page.locator(part).inner_text() for part in parts[:2]]
                if name == "run-report":
                    texts.append(page.locator(parts[-1]).inner_text())
                made[f"{name}-{theme}.png"] = _with_words(png, "\n".join(texts))
        browser.close()
    return made


def chromium() -> str:
    """Return the path of the browser that draws the run report."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if find_spec("playwright") is None or path is None:
        raise RuntimeError(
            "the picture of the run report needs chromium and playwright: install chromium and "
            "the extra [dev], or leave the pictures as they are with --no-pictures."
        )
    return path


def _with_words(png: bytes, words: str) -> bytes:
    """Return a picture with the words that it shows, by which it is compared with a new one."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    info, file = PngInfo(), io.BytesIO()
    info.add_itxt("Description", words, zip=True)
    Image.open(io.BytesIO(png)).convert("RGB").save(file, "png", optimize=True, pnginfo=info)
    return file.getvalue()


def words_of(picture: str | bytes) -> str:
    """Return the text of a picture with its numbers masked, and without spaces."""
    if isinstance(picture, bytes):
        from PIL import Image

        text = str(Image.open(io.BytesIO(picture)).info["Description"])
        # the unit of a duration is as long as the training was slow
        return re.sub(r"[\d.:]+(?: (?:ms|s|min|h)\b)?|\s+", "", text)
    svg = picture
    text = "".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg)).replace("&#160;", "")
    # a filled part of a bar is as long as the training was fast
    return re.sub(r"[\d.:?]+(?:it/s|s/it)?|[━╸╺─█▏▎▍▌▋▊▉]+|\s+", "", text)


def read_picture(file: Path) -> str | bytes:
    """Return a picture as it was made: the text of an SVG, or the bytes of a PNG."""
    return file.read_text(encoding="utf-8") if file.suffix == ".svg" else file.read_bytes()


def write_pictures(made: dict[str, str | bytes]) -> None:
    """Write the pictures whose words have changed, and remove those that are no more."""
    PICTURES.mkdir(exist_ok=True, parents=True)
    for name, picture in made.items():
        file = PICTURES / name
        if not file.exists() or words_of(read_picture(file)) != words_of(picture):
            file.write_bytes(picture if isinstance(picture, bytes) else picture.encode())
    for file in PICTURES.iterdir():
        if file.name not in made:
            file.unlink()


def terminal(folder: Path, command: list[str], lines: int, columns: int = 100) -> list[Text]:
    """Run a command on a terminal, and return the lines of its screen with their colours.

    Args:
        folder: where it runs.
        command: its words.
        lines: how many the terminal has.
        columns: how wide it is.
    """
    import fcntl
    import struct
    import termios

    import pyte

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        command, cwd=folder, env=_environ(), stdin=follower, stdout=follower, stderr=follower
    )
    os.close(follower)
    printed = b""
    try:
        while _SNAP not in printed and (some := os.read(leader, 65536)):
            printed += some
    except OSError:  # the command has ended
        pass
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    screen = pyte.Screen(columns, lines)
    pyte.ByteStream(screen).feed(printed.partition(_SNAP)[0])
    rows = [_row(screen, number) for number in range(lines)]
    while rows and not rows[-1].plain:
        rows.pop()
    return rows


def _row(screen: pyte.Screen, number: int) -> Text:
    from rich.text import Text

    text, run, style = Text(), "", ""
    for column in range(screen.columns):
        char = screen.buffer[number][column]
        colour = {"default": "default", "brown": "yellow"}.get(char.fg, char.fg)
        colour = f"#{colour}" if re.fullmatch("[0-9a-f]{6}", colour) else colour
        colour = re.sub(r"^bright(?=[a-z])", "bright_", colour).replace(
            "bright_brown", "bright_yellow"
        )
        its_style = f"{'bold ' if char.bold else ''}{colour}"
        if its_style != style:
            text.append(run, style)
            run, style = "", its_style
        run += char.data
    text.append(run, style)
    text.rstrip()
    return text


def _drawn(name: str, rows: Iterable[Text], title: str) -> dict[str, str]:
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    rows = [*rows, Text()]  # the last line is cut off
    # no fonts from elsewhere
    code = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    code = code.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    normal = [(0, 0, 0), (160, 20, 20), (10, 110, 40), (130, 90, 0), (20, 70, 170), (120, 30, 130),
              (0, 100, 110), (70, 70, 70)]  # fmt: skip
    bright = [(140, 140, 140), (255, 130, 130), (120, 220, 140), (240, 210, 110), (140, 180, 255),
              (225, 150, 240), (110, 215, 225), (255, 255, 255)]  # fmt: skip
    themes = {
        "light": TerminalTheme((248, 249, 251), (30, 32, 36), normal, normal),
        "dark": TerminalTheme((27, 30, 36), (222, 226, 232), bright, bright),
    }
    made = {}
    for theme, colours in themes.items():
        console = Console(
            record=True, width=max(row.cell_len for row in rows) + 1, file=io.StringIO(),
            force_terminal=True, color_system="truecolor",
        )  # fmt: skip
        for row in rows:
            console.print(row, no_wrap=True, crop=False, highlight=False)
        made[f"{name}-{theme}.svg"] = console.export_svg(
            title=title, theme=colours, code_format=code, unique_id=f"{name}-{theme}"
        )
    return made


def _cut(tree: list[Text]) -> list[Text]:
    """Leave of the loop's tree who takes part, a validation, and the batches of an epoch."""
    from rich.text import Text

    names = [row.plain.lstrip("│├└─ ") for row in tree]
    more = Text("    ...")
    validation = names.index("the validation loop"), names.index("on_sanity_check_end")
    batches = (
        names.index("on_train_epoch_start"),
        names.index("if a validation is due on this batch"),
    )
    return [
        *tree[: names.index("fit") + 1], more, *tree[slice(*validation)], more,
        *tree[slice(*batches)], more,
    ]  # fmt: skip


def front_picture(
    whole: list[tuple[int, float]], killed: list[tuple[int, float]], at: int, theme: str
) -> str:
    """Draw the losses of two runs, of which one was killed, each beside the other.

    Args:
        whole: step and loss of the uninterrupted run.
        killed: of the one that was killed and resumed.
        at: the step at which it was killed.
        theme: "light" or "dark".
    """
    if whole != killed:
        raise RuntimeError(f"the resumed run differs: {whole} and {killed}")
    ink, faint, first, second, bad = {
        "light": ("#1e2024", "#5a5f66", "#0a4fbf", "#0b6e2d", "#b3261e"),
        "dark": ("#dee2e8", "#a0a4aa", "#8ab4ff", "#7fdc93", "#ff8a80"),
    }[theme]
    last, top = whole[-1][0], max(loss for _, loss in whole)

    def line(points: list[tuple[int, float]], left: int, colour: str) -> str:
        places = " ".join(
            f"{left + 280 * s / last:.0f},{190 - 120 * loss / top:.0f}" for s, loss in points
        )
        return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="3"/>'

    def label(x: float, y: float, text: str, colour: str, size: int = 15) -> str:
        place = f'x="{x:.0f}" y="{y:.0f}"'
        return f'<text {place} fill="{colour}" font-size="{size}">{escape(text)}</text>'

    left, right = 20, 380
    cut = right + 280 * at / last
    parts = [
        label(left, 28, "one run", ink, 18),
        label(right, 28, "the same, killed and started again", ink, 18),
        line(whole, left, first),
        line([p for p in killed if p[0] <= at], right, first),
        line([p for p in killed if p[0] >= at - 1], right, second),
        f'<path d="M{cut:.0f} 62V195" stroke="{bad}" stroke-width="2" stroke-dasharray="5 4"/>',
        label(cut - 62, 58, f"killed at batch {at}", bad),
        label(cut + 8, 120, "resumed", second),
        label(left + 200, 120, "loss", faint),
    ]
    for x in (left, right):
        parts.append(f'<line x1="{x}" x2="{x + 290}" y1="195" y2="195" stroke="{faint}"/>')
        parts.append(label(x, 216, f"batches: {last + 1}", faint))
    parts.append(label(left, 250, "The weights at the end are equal, bit for bit.", ink, 18))
    going_on = "Optimizer, random numbers, place in the data and callbacks go on where they were."
    parts.append(label(left, 274, going_on, faint))
    body = "\n".join(parts)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 690 285" '
        f'font-family="system-ui, sans-serif">\n{body}\n</svg>\n'
    )


def _write_programs(folder: Path) -> None:
    """Write the programs of the tutorial's steps, and those that show the bars and the tree."""
    for step in ("1-a-first-module", "2-a-callback", "4-kill-it-and-go-on"):
        page = (FOLDER / "learn" / f"{step}.md").read_text(encoding="utf-8")
        for name, text in _FILE.findall(page):
            (folder / name).write_text(text, encoding="utf-8")
    (folder / "bars.py").write_text(_BARS, encoding="utf-8")
    (folder / "tree.py").write_text(_TREE, encoding="utf-8")


def _train(folder: Path, run: str, **environ: str) -> None:
    """Run the training of the tutorial's last step; one that is told to kill itself may fail."""
    subprocess.run(
        [sys.executable, "train.py", run], cwd=folder, env={**_environ(), **environ},
        capture_output=True, check=not environ,
    )  # fmt: skip


def _train_killed(folder: Path) -> None:
    """Train until the run kills itself, and once more to its end."""
    _train(folder, "killed", KILL_AT="100")
    _train(folder, "killed")


def _environ() -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("TRAINER_HOOKS_")
    }
    # rich takes these for the terminal's
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        kept.pop(name, None)
    return {
        **kept, "TERM": "xterm-256color", "COLORTERM": "truecolor",
        "TRAINER_HOOKS_DISABLE_PLUGINS": "1", "PYTHONWARNINGS": "ignore",
        "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip


def _check_equal(folder: Path) -> None:
    """Run the tutorial's comparison of the two weights, which raises if they differ."""
    subprocess.run([sys.executable, "compare.py"], cwd=folder, env=_environ(), check=True)


def _last_checkpoint(folder: Path) -> Path:
    return max(folder.rglob("*.ckpt"), key=lambda file: file.stat().st_mtime_ns)


def _losses(folder: Path) -> list[tuple[int, float]]:
    (file,) = folder.rglob("metrics.csv")
    with file.open(encoding="utf-8", newline="") as rows:
        return [
            (int(row["step"]), float(row["train_loss"]))
            for row in csv.DictReader(rows)
            if row["train_loss"]
        ]
