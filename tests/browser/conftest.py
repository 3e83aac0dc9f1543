"""A JupyterLab and a Chromium for the tests of this folder."""

import shutil

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium():
    """Path of the system's Chromium; in CI a skip is a failure."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    return found


@pytest.fixture(scope="session")
def lab(tmp_path_factory, chromium):  # noqa: ARG001 - without a browser no server is started
    from tests.browser.lab import Lab

    server = Lab(tmp_path_factory.mktemp("lab"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def browser(chromium):
    """Chromium; per module, as Playwright keeps an event loop running that others trip over."""
    from playwright.sync_api import sync_playwright

    from tests.browser.notebook_page import FLAGS

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def tab(lab, browser):
    """Opens notebooks, each in a tab; afterwards their kernels end and leave nothing."""
    from tests.browser.notebook_page import NotebookPage

    context = browser.new_context(viewport={"width": 1000, "height": 1300})
    yield lambda name: NotebookPage(context.new_page(), lab, name)
    context.close()
    assert not lab.shut_kernels(), "processes outlive their kernels"
