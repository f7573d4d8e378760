"""A real Chromium for the control room: Debian's, driven by Playwright. Skipped, visibly, where there is none."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings

from tests.integration.admin_work import bodies

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

BUILD = Path(__file__).resolve().parents[2] / "build" / "screenshots"
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}

# Says each violation of the Content-Security-Policy aloud, whichever script or style it was.
_LISTEN = (
    "document.addEventListener('securitypolicyviolation', e => console.error('CSP', e.violatedDirective, e.blockedURI))"
)


def chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """For this package only: while it is open Django takes every caller for an async one, for Playwright's synchronous
    calls run on an event loop of this thread."""
    if chromium() is None:
        pytest.skip("NO BROWSER: install Debian's chromium to run the tests of the control room in one")
    playwright = pytest.importorskip("playwright.sync_api", reason="NO BROWSER: pip install playwright")
    with playwright.sync_playwright() as started, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        launched = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(autouse=True)
def _world(browser: Browser, transactional_db: None, tmp_path: Path) -> Iterator[None]:
    with bodies(), override_settings(MEDIA_ROOT=str(tmp_path)):
        yield


@pytest.fixture
def boss() -> User:
    return User.objects.create(username="boss", is_staff=True, is_superuser=True)


Opened = Callable[..., "Page"]


@pytest.fixture
def open_as(browser: Browser, live_server: Any) -> Iterator[Opened]:
    """Opens a page in a context of its own, signed in as a user or as nobody. Any error of the page fails the test."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def opened(user: User | None, *, size: dict[str, int] = DESKTOP) -> Page:
        context = browser.new_context(base_url=live_server.url, viewport=size)  # type: ignore[arg-type]
        contexts.append(context)
        if user is not None:
            client = Client()
            client.force_login(user)
            session = client.cookies["sessionid"].value
            context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
        context.add_init_script(_LISTEN)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: _note(message, faults))
        page.on("pageerror", lambda error: faults.append(f"page error: {error}"))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def _note(message: Any, faults: list[str]) -> None:
    # What is refused, gone or not found has its status, and the browser says so; that is no fault of the page.
    said = f"{message.text} {message.location.get('url', '')}"
    is_expected = re.search(r"status of (422|409|410) |status of 404 .*/work/|favicon\.ico", said)
    if message.type == "error" and not is_expected:
        faults.append(said)


def shoot(page: Page, name: str) -> None:
    """Keeps a picture of the page as build output."""
    BUILD.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=BUILD / f"{name}.png", full_page=True)
