"""A headless Chromium, driven through chromedriver's own HTTP interface."""

import base64
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def missing() -> str:
    """Why no browser can be started, or ""."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else ""


class Browser:
    """One window. `call` is a command of the W3C WebDriver protocol."""

    def __init__(self, address: str, session: str):
        self._base = f"{address}/session/{session}"

    def call(self, command: str, **body: Any) -> Any:
        return _post(f"{self._base}/{command}", body)

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Sets the viewport in CSS pixels, and the colour scheme that the reader prefers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=metrics)
        scheme = {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]}
        self.call("goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params=scheme)

    def open(self, path: Path) -> None:
        self.call("url", url=path.resolve().as_uri())

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return self.call("execute/sync", script=f"return {script}", args=[])

    def console(self) -> list[dict[str, Any]]:
        return self.call("se/log", type="browser")

    def requests(self) -> list[str]:
        """The addresses that the page asked for since the last call."""
        entries = [json.loads(entry["message"])["message"] for entry in self.call("se/log", type="performance")]
        sent = [entry for entry in entries if entry["method"] == "Network.requestWillBeSent"]
        return [entry["params"]["request"]["url"] for entry in sent]

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        shot = self.call("goog/cdp/execute", cmd="Page.captureScreenshot", params={"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Starts chromedriver and a window whose profile lies in `folder`; ends both."""
    driver = subprocess.Popen(
        [str(shutil.which("chromedriver")), "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert driver.stdout is not None
        ready = next(line for line in driver.stdout if "successfully on port" in line)
        address = f"http://127.0.0.1:{ready.rstrip().rstrip('.').rsplit(' ', 1)[1]}"
        options = {"binary": shutil.which("chromium"), "args": [*FLAGS, f"--user-data-dir={folder}"]}
        logging = {"browser": "ALL", "performance": "ALL"}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": logging}}
        session = _post(f"{address}/session", {"capabilities": wanted})["sessionId"]
        window = Browser(address, session)
        try:
            # The browser's own start page is left, and what it asked for is forgotten.
            window.call("url", url="about:blank")
            window.requests()
            yield window
        finally:
            request = urllib.request.Request(f"{address}/session/{session}", method="DELETE")
            _direct.open(request, timeout=60).close()
    finally:
        driver.terminate()
        driver.wait(timeout=30)


# No proxy: chromedriver listens on this machine.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _post(address: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        address, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    with _direct.open(request, timeout=120) as response:
        return json.load(response)["value"]
