"""A headless Chromium for tests of pages, where there is one; and replays of fewer requests."""

from __future__ import annotations

import os
import shutil

import pytest

#: What a reader would see as a fault: text wider than its box, words of a picture outside it,
#: on top of each other or smaller than 10 px.
FAULTS = """() => {
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg') || e.closest('thead') || !e.clientWidth) continue;
    if (getComputedStyle(e).display !== 'inline' && e.scrollWidth > e.clientWidth + 1)
      found.push(`${e.tagName} is clipped: ${e.textContent.slice(0, 60)}`);
  }
  for (const svg of document.querySelectorAll('svg')) {
    const frame = svg.getBoundingClientRect();
    const words = [...svg.querySelectorAll('text')].map(t => [t.getBoundingClientRect(), t.textContent]);
    for (const t of svg.querySelectorAll('text')) {
      const high = parseFloat(getComputedStyle(t).fontSize) * frame.width / svg.viewBox.baseVal.width;
      if (high < 10) found.push(`words of ${high.toFixed(1)} px: ${t.textContent}`);
    }
    words.forEach(([a, said], i) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1)
        found.push(`outside the picture: ${said}`);
      for (const [b, other] of words.slice(i + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && high > 2) found.push(`on each other: ${said} / ${other}`);
      }
    });
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push('the page scrolls sideways');
  return found;
}"""


@pytest.fixture(scope="module")
def short_replays():
    """Where there is no trace, replays of 4,000 random arrivals in place of 20,000; not in `make test-all`."""
    if os.environ.get("HYPOTHESIS_PROFILE") == "thorough":
        yield
        return
    from dmodels.studies.plan import machines

    drawn = machines.drawn
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(machines, "drawn", lambda workload, seed, count: drawn(workload, seed, count // 5))
        yield


@pytest.fixture(scope="module")  # not longer: playwright keeps an event loop running, which asyncio.run refuses
def chromium():
    """A browser; its pages are opened with `new_page`."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: `make browser`")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        end = pytest.fail if os.environ.get("CHROMIUM") == "required" else pytest.skip
        end("no Chromium on this machine; `.ci/run` installs it where it can, `make browser` insists on it")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def faults():
    """faults(page): what a reader would see as broken on it."""
    return lambda page: page.evaluate(FAULTS)
