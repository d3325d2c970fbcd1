"""A headless Chromium, driven over its DevTools protocol."""

import asyncio
import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import aiohttp

from support import ENDS_WITH_US
from waiting import WAIT_S, MissedWait

PROGRAMS = ("chromium-headless-shell", "chromium")


def program() -> str | None:
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Page:
    """One tab. Everything that the page's console says against it is in `complaints`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.number = 0
        self.answers: dict[int, asyncio.Future] = {}
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.reader = asyncio.create_task(self.read())

    async def read(self) -> None:
        async for message in self.socket:
            event = json.loads(message.data)
            if "id" in event:
                self.answers.pop(event["id"]).set_result(event)
            elif event["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(event["params"]["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(event["params"]["args"]))
            elif event["method"] == "Log.entryAdded":
                self.complaints.append(json.dumps(event["params"]["entry"]))
            elif event["method"] == "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])

    async def call(self, method: str, **parameters) -> dict:
        self.number += 1
        answer = self.answers[self.number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json(
            {"id": self.number, "method": method, "params": parameters})
        event = await asyncio.wait_for(answer, WAIT_S)
        if "error" in event:
            raise AssertionError(f"{method}: {event['error']}")
        return event["result"]

    async def evaluate(self, expression: str):
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                                 awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    async def until(self, expression: str):
        """The expression's value, as soon as it is true."""
        end = time.monotonic() + WAIT_S
        while not (value := await self.evaluate(expression)):
            if time.monotonic() > end:
                raise MissedWait(f"no {expression}", WAIT_S)
            await asyncio.sleep(0.05)
        return value

    async def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                            windowsVirtualKeyCode=codes[key], **(text if kind == "keyDown" else {}))

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def show_as(self, width: int, height: int, scheme: str) -> None:
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                        deviceScaleFactor=1, mobile=width < 600)
        await self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"}])

    async def screenshot(self, path: pathlib.Path) -> bytes:
        shot = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path.read_bytes()


@contextlib.asynccontextmanager
async def open_page(url: str, width: int = 1360, height: int = 900, scheme: str = "light"):
    with tempfile.TemporaryDirectory(prefix="hps_browser_", ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [*ENDS_WITH_US, program(), "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
             f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            found = None
            for line in browser.stderr:
                if found := re.search(r"ws://(\S+?)/", line):
                    break
            assert found, "chromium ended without an address"
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://{found[1]}/json/list") as answer:
                    tabs = await answer.json(content_type=None)
                address = next(tab["webSocketDebuggerUrl"] for tab in tabs
                               if tab["type"] == "page")
                async with session.ws_connect(address, max_msg_size=64 << 20) as socket:
                    page = Page(socket)
                    for domain in ("Runtime", "Log", "Network", "Page"):
                        await page.call(f"{domain}.enable")
                    await page.show_as(width, height, scheme)
                    await page.call("Page.navigate", url=url)
                    yield page
        finally:
            os.killpg(browser.pid, signal.SIGKILL)  # its helpers too, which outlive it else
            browser.stderr.close()
            browser.wait()
