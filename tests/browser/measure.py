"""How long the panels keep people waiting in a real JupyterLab; nothing is asserted here.

    python -m tests.browser.measure [--repeats 3] [--out data/evidence/browser.json]

It opens notebook 00 until a convergence curve moves, moves a slider over finished runs, and
clicks while a replay of endless trials runs. Measure on an idle machine: the result says how
busy it was. At its usual place it is told in the README as well.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from kt_lab.provenance import provenance
from tests.browser.conftest import CHROMIUM
from tests.browser.lab import ROOT, Lab
from tests.browser.notebook_page import FLAGS, FOLDS, NotebookPage

NAME = "00_start_here.ipynb"
STORED = ROOT / "data" / "evidence" / "browser.json"
BEGIN, END = "<!-- browser -->", "<!-- /browser -->"
CLICKS = 60
PAUSES = 10
MOVES = 20
# A searcher that proposes every config again and again: replay itself sets the pace.
_ENDLESS = """
import itertools
from kt_lab.trial import Proposal
from kt_lab.ui import tuner

class Endless:
    done = False

    def __init__(self, name, space, **_):
        self.configs, self.numbers = space.configs(space.enumerate()), itertools.count()

    def ask(self, n):
        some = itertools.islice(self.numbers, n)
        return [Proposal(k, self.configs[k % len(self.configs)]) for k in some]

    def tell(self, trials):
        pass

    def close(self):
        pass

tuner.make_searcher = Endless
panel.choose(trials=10**9)
"""
_PICTURES = """() => {
    window.ktlPictures = new Set();
    const look = () => {
        const image = document.querySelector('.ktl-tuner .ktl-image');
        if (image && image.naturalWidth) window.ktlPictures.add(image.src);
        if (window.ktlPictures.size < 2) requestAnimationFrame(look);
    };
    look();
}"""
# From a key or click as the browser noted it, in the page's own clock, milliseconds.
_REDRAWN = """(css) => {
    const image = [...document.querySelectorAll(css)].at(-1);
    let at = 0;
    window.addEventListener('keydown', (event) => { at = event.timeStamp; },
        {capture: true, once: true});
    window.ktlTook = new Promise((resolve) => image.addEventListener('load',
        () => requestAnimationFrame(() => resolve(performance.now() - at)), {once: true}));
}"""
_WATCH = """() => {
    window.ktlInput = []; window.ktlFrames = [];
    window.ktlWatching = true;
    const {ktlInput, ktlFrames} = window;
    window.addEventListener('mousedown', (event) => requestAnimationFrame(() => setTimeout(
        () => ktlInput.push(performance.now() - event.timeStamp))), true);
    let last = performance.now();
    const frame = (now) => {
        ktlFrames.push(now - last);
        last = now;
        if (window.ktlWatching) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
}"""


def spread(values_ms: list[float]) -> dict[str, float]:
    """Returns median, 95th percentile and maximum, milliseconds, and how many values."""
    ordered = sorted(values_ms)
    at = {"p50_ms": 0.5, "p95_ms": 0.95, "max_ms": 1.0}
    found = {name: ordered[min(len(ordered) - 1, int(q * len(ordered)))] for name, q in at.items()}
    return {name: round(value, 1) for name, value in found.items()} | {"n": len(ordered)}


def first_curve(browser: Browser, lab: Lab) -> tuple[NotebookPage, dict[str, float]]:
    """Opens notebook 00, runs all, and returns when what was to be seen, seconds."""
    page = browser.new_context(viewport={"width": 1000, "height": 1300}).new_page()
    began = time.monotonic()
    seen = {}

    def lap(name: str) -> None:
        seen[name] = round(time.monotonic() - began, 2)

    notebook = NotebookPage(page, lab, NAME)
    lap("notebook_s")
    page.evaluate(_PICTURES)
    notebook.run_all(wait=False)
    page.locator(".ktl-tuner .ktl-start").wait_for()
    lap("panel_s")
    page.wait_for_function("() => window.ktlPictures.size >= 1")
    lap("curve_s")
    page.wait_for_function("() => window.ktlPictures.size >= 2")
    lap("moving_curve_s")
    notebook.until(".ktl-compare .ktl-status", "^done")
    lap("compared_s")
    notebook.done()
    return notebook, seen


def redraws(notebook: NotebookPage, handle: str, picture: str) -> list[float]:
    """Returns per step of a slider the milliseconds from the key to the new picture."""
    took = []
    notebook.page.locator(handle).last.focus()
    for step in range(MOVES):
        notebook.page.evaluate(_REDRAWN, picture)
        notebook.page.keyboard.press("ArrowRight" if step < MOVES / 2 else "ArrowLeft")
        took.append(notebook.evaluate("() => window.ktlTook"))
        notebook.page.wait_for_timeout(150)
    return took


def clicks(notebook: NotebookPage) -> dict[str, dict[str, float]]:
    """Clicks a fold of the tuner's; returns from click to paint, and between frames."""
    page = notebook.page
    page.evaluate(_WATCH)
    header = page.locator(f".ktl-tuner {FOLDS}").last
    header.scroll_into_view_if_needed()
    for _ in range(CLICKS):
        spot = header.bounding_box()
        page.mouse.click(spot["x"] + 30, spot["y"] + 10)
        page.wait_for_timeout(50)
    page.evaluate("() => { window.ktlWatching = false; }")
    found = {"click_to_paint": "ktlInput", "between_frames": "ktlFrames"}
    return {name: spread(page.evaluate(f"() => window.{at}")) for name, at in found.items()}


def pauses(notebook: NotebookPage) -> dict[str, float]:
    """Pauses and resumes; returns from click to what the kernel answered, as shown."""
    took = []
    for step in range(2 * PAUSES):
        wanted = "resume" if step % 2 == 0 else "pause"
        began = time.monotonic()
        notebook.page.locator(".ktl-tuner .ktl-pause").last.click()
        notebook.until(".ktl-tuner .ktl-pause", wanted)
        took.append(1000 * (time.monotonic() - began))
        notebook.page.wait_for_timeout(200)
    return spread(took)


def trials_per_s(notebook: NotebookPage) -> float:
    """Returns how many trials the panel's session ends a second, over two seconds."""
    code = "import time; print(time.monotonic(), panel.session.snapshot().readings)"
    one = [float(x) for x in notebook.execute(code).split()]
    notebook.page.wait_for_timeout(2000)
    two = [float(x) for x in notebook.execute(code).split()]
    return (two[1] - one[1]) / (two[0] - one[0])


def measure(lab: Lab, browser: Browser, *, repeats: int) -> dict:
    """Returns everything that is measured, JSON-ready."""
    opened = []
    for _ in range(repeats):
        shutil.rmtree(lab.data / "comparisons", ignore_errors=True)
        notebook, seen = first_curve(browser, lab)
        opened.append(seen)
        if len(opened) < repeats:
            notebook.page.context.close()
            lab.shut_kernels()
    slider = spread(redraws(notebook, ".ktl-target .noUi-handle", ".ktl-compare .ktl-image"))
    rest = clicks(notebook)
    assert notebook.execute(_ENDLESS) == ""
    notebook.click(".ktl-tuner .ktl-start")
    notebook.until(".ktl-tuner .ktl-status", r"^running: [\d,]+ trials")
    notebook.page.wait_for_timeout(2000)
    rates = [trials_per_s(notebook)]
    busy = clicks(notebook)
    rates.append(trials_per_s(notebook))
    answered = pauses(notebook)
    notebook.click(".ktl-tuner .ktl-stop")
    notebook.until(".ktl-tuner .ktl-status", "^stopped")
    return {
        "opening": opened,
        "slider_redraw": slider,
        "at_rest": rest,
        "replay_trials_per_s": [round(rate) for rate in rates],
        "while_replaying": busy | {"pause_answered": answered},
    }


def report(result: dict) -> str:
    """Returns the numbers for people."""
    opening = [seen["moving_curve_s"] for seen in result["opening"]]
    told = {
        "target slider to new picture": result["slider_redraw"],
        "click to paint, nothing running": result["at_rest"]["click_to_paint"],
        "click to paint, replaying": result["while_replaying"]["click_to_paint"],
        "between frames, replaying": result["while_replaying"]["between_frames"],
        "pause answered by the kernel, replaying": result["while_replaying"]["pause_answered"],
    }
    lines = [
        f"opening {NAME} to a moving curve: {statistics.median(opening):.1f} s "
        f"({min(opening):.1f} to {max(opening):.1f}, {len(opening)} times) on "
        f"{result['cores']} cores, load {result['load_before']:.1f} before",
        f"replay: {min(result['replay_trials_per_s']):,} trials/s or more",
    ]
    lines += [
        f"{name}: median {s['p50_ms']:.0f} ms, 95% {s['p95_ms']:.0f} ms, most {s['max_ms']:.0f} ms"
        for name, s in told.items()
    ]
    return "\n".join(lines)


def block(result: dict) -> str:
    """Returns the README's account of a result."""
    opening = sorted(seen["moving_curve_s"] for seen in result["opening"])
    slider, busy = result["slider_redraw"], result["while_replaying"]
    click, answer = busy["click_to_paint"], busy["pause_answered"]
    return (
        f"From opening notebook 00 to a convergence curve that moves: {opening[0]:.0f} to "
        f"{opening[-1]:.0f} s on {result['cores']} cores ({len(opening)} times). A slider's step "
        f"to the redrawn comparison: median {slider['p50_ms']:.0f} ms, at most "
        f"{slider['max_ms']:.0f} ms. While a replay of {min(result['replay_trials_per_s']):,} "
        f"trials a second runs, a click is painted after {click['p50_ms']:.0f} ms (95 %: "
        f"{click['p95_ms']:.0f} ms, at most {click['max_ms']:.0f} ms), and *pause* is answered by "
        f"the kernel after {answer['p50_ms']:.0f} ms (at most {answer['max_ms']:.0f} ms)."
    )


def publish(result: dict, readme: Path) -> None:
    """Writes a result's account into the README."""
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    readme.write_text(f"{before}{BEGIN}\n{block(result)}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Measures, stores and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3, help="how often the notebook is opened")
    parser.add_argument("--out", type=Path, default=STORED)
    args = parser.parse_args()
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        parser.error("measuring needs Chromium: apt-get install chromium")
    about = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        lab = Lab(Path(directory))
        try:
            browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
            about["chromium"] = browser.version
            result = measure(lab, browser, repeats=args.repeats)
            browser.close()
        finally:
            lab.close()
    result |= about | {"provenance": provenance()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1, default=str) + "\n", encoding="utf-8")
    if args.out == STORED:
        publish(result, ROOT / "README.md")
    print(report(result))
    print(f"stored in {args.out}")


if __name__ == "__main__":
    main()
