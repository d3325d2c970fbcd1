"""The dashboard in a real browser: values move, nothing complains, nothing comes from elsewhere."""

import asyncio
import json
import os
import struct
import time
import unittest

import browser
import support
from load import Load
from support import WAIT_S, is_built_with

SHOTS = support.ROOT / "build" / "screenshots"
TOKEN = "the-token-of-the-page"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
TILE = "[...document.querySelectorAll('.tile')].find(t => t.querySelector('.name').textContent === "
STATE = "document.getElementById('state-text').textContent"
HAS_CHARTS = "document.querySelectorAll('#chart-requests .series').length > 0"
OVERLAPS = """[...document.querySelectorAll('.plot')].flatMap(plot => {
  const texts = [...plot.querySelectorAll('text')].map(text => [text.textContent,
                                                               text.getBoundingClientRect()]);
  return texts.flatMap(([text, a], i) => texts.slice(i + 1).filter(([, b]) =>
      a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
    .map(([other]) => text + ' over ' + other));
}).join()"""
SHOW_WINDOW = ("(() => { const s = document.getElementById('window'); s.value = 'WINDOW';"
               " s.dispatchEvent(new Event('change')); return true; })()")
FAST = ("(() => { const s = document.getElementById('refresh'); s.value = '1';"
        " s.dispatchEvent(new Event('change')); return true; })()")


def tile(name: str) -> str:
    return f"{TILE}'{name}')?.querySelector('.value').textContent"


@unittest.skipUnless(browser.program(), "no Chromium on this machine")
class DashboardTest(support.ServerTestCase):

    def check_quiet(self, page: browser.Page, server) -> None:
        self.assertEqual(page.complaints, [])
        for url in page.requests:
            self.assertTrue(url.startswith(f"http://{server.http}/") or url == "about:blank", url)

    def test_values_move_in_light_dark_and_small(self) -> None:
        server = self.serve_ready()
        asyncio.run(self.look(server))
        self.assertEqual(server.stop(), 0)

    async def look(self, server) -> None:
        with Load(server, threads=2) as load:
            async with browser.open_page(f"http://{server.http}/") as page:
                await page.until("document.getElementById('state-text')?.textContent === 'ready'")
                await page.evaluate(FAST)
                await page.until(HAS_CHARTS)
                first = await page.until(tile("Requests"))
                await page.until(f"{tile('Requests')} !== '{first}'")
                await page.until(f"{tile('Keys')} !== '0/s'")
                await page.until("document.querySelectorAll('#chart-share .band').length > 0")
                await page.until("/µs|ms/.test(" + tile("Latency p99") + ")")
                self.assertEqual(await page.evaluate("document.querySelectorAll('.level').length"),
                                 2)
                for width, height, scheme, name in ((1360, 900, "light", "light"),
                                                    (1360, 900, "dark", "dark"),
                                                    (360, 800, "light", "small"),
                                                    (360, 800, "dark", "small_dark")):
                    await page.show_as(width, height, scheme)
                    await page.until(f"document.documentElement.dataset.theme === '{scheme}'")
                    await page.until("document.querySelector('#chart-requests svg').clientWidth"
                                     f" < {width} && {HAS_CHARTS}")
                    self.assertLessEqual(
                        await page.evaluate("document.documentElement.scrollWidth"), width, name)
                    for window in ("60", "900", "300"):
                        await page.evaluate(SHOW_WINDOW.replace("WINDOW", window))
                        self.assertEqual(await page.evaluate(OVERLAPS), "", f"{name} {window}")
                    shot = await page.screenshot(SHOTS / f"dashboard_{name}.png")
                    # A scroll bar may take some of it.
                    self.assertIn(struct.unpack(">I", shot[16:20])[0], range(width - 20, width + 1))
                self.check_quiet(page, server)
        self.assertEqual(load.wrong, [])

    def test_a_key_is_looked_up_by_keyboard(self) -> None:
        server = self.serve_ready()
        asyncio.run(self.look_up(server))

    async def look_up(self, server) -> None:
        async with browser.open_page(f"http://{server.http}/") as page:
            await page.until("document.querySelectorAll('#tables tbody tr').length === 2")
            await page.evaluate(
                "document.querySelector('[data-name=\"ctr/user\"]').focus() ?? true")
            await page.press("Enter")
            await page.until("document.getElementById('table-dialog').open")
            await page.evaluate("document.getElementById('lookup-key').focus() ?? true")
            await page.type("17")
            await page.press("Enter")
            row = await page.until("document.querySelector('.answer .row')?.textContent")
            wanted = support.stamped("user", support.np.array([17]))[0]
            self.assertEqual([float(part) for part in row.strip("[]").split(",")], wanted.tolist())
            await page.screenshot(SHOTS / "dashboard_table.png")
            await page.evaluate("(document.getElementById('lookup-key').value = '', true)")
            await page.type("99999999999999999999")
            self.check_quiet(page, server)
            await page.press("Enter")
            error = await page.until("document.querySelector('.answer .error')?.textContent")
            self.assertIn("2^63", error)
            await page.press("Escape")
            await page.until("!document.getElementById('table-dialog').open")
            # The read-out of a chart moves with the arrow keys.
            await page.evaluate(FAST)
            await page.until("document.querySelectorAll('#chart-requests .series').length > 0")
            await page.evaluate("document.querySelector('#chart-requests svg').focus() ?? true")
            await page.press("ArrowLeft")
            await page.until("document.querySelector('#chart-requests .cursor') !== null")
            self.assertIn("Requests per second, at", await page.evaluate(
                "document.querySelector('#chart-requests svg').getAttribute('aria-label')"))

    def test_it_says_so_when_the_server_is_gone(self) -> None:
        server = self.serve_ready()
        asyncio.run(self.lose(server))

    async def lose(self, server) -> None:
        async with browser.open_page(f"http://{server.http}/") as page:
            await page.until("document.getElementById('state-text')?.textContent === 'ready'")
            await page.evaluate(FAST)
            server.kill()
            await page.until("document.getElementById('state').dataset.state === 'unreachable'")
            self.assertIn("No answer", await page.evaluate(
                "document.getElementById('notice').textContent"))

    def test_its_header_is_red_and_says_what_is_wrong(self) -> None:
        """A model that is not loaded, a disk that is nearly full, and brokers that are away."""
        disk = os.statvfs(self.directory)  # the store counts what root alone may use if it is root
        free = disk.f_frsize * (disk.f_bavail if os.geteuid() else disk.f_bfree)
        server = self.serve_ready(
            store=f'free_bytes_min = "{free // 2 >> 20}MiB"\n', environment={"HPS_TOKEN": TOKEN},
            security="repository_control = true",
            sections='[update]\nbrokers = ["127.0.0.1:1"]\nready_timeout = "1s"\n'
            if is_built_with("KAFKA") else "")
        status, _ = server.get(f"/v2/repository/models/{support.MODEL}/unload", AUTHORIZED,
                               data=b"", method="POST")
        self.assertEqual(status, 200)
        asyncio.run(self.read_problems(server))

    async def read_problems(self, server) -> None:
        wanted = [f"model {support.MODEL} is not served: ", "the store's disk is nearly full: "]
        if is_built_with("KAFKA"):
            wanted.append("the update stream cannot be read: ")
        async with browser.open_page(f"http://{server.http}/") as page:
            await self.type_token(page)
            await page.until(f"document.querySelectorAll('#problems li').length === {len(wanted)}")
            problems = await page.evaluate(
                "[...document.querySelectorAll('#problems li')].map(li => li.textContent)")
            for problem, begin in zip(problems, wanted, strict=True):
                self.assertTrue(problem.startswith(begin) and len(problem) > len(begin), problem)
            self.assertEqual(problems, json.loads(server.get("/api/overview", AUTHORIZED)[1])[
                "problems"])
            self.assertEqual(await page.evaluate(STATE), f"ready, {len(wanted)} problems")
            colors = await page.evaluate(
                "(() => { const style = document.createElement('i').style;"
                " style.color = getComputedStyle(document.documentElement)"
                ".getPropertyValue('--bad').trim(); return [style.color,"
                " getComputedStyle(document.querySelector('#state .dot')).backgroundColor,"
                " getComputedStyle(document.getElementById('state')).color]; })()")
            self.assertEqual(set(colors), {colors[0]})
            self.assertLess(await page.evaluate(
                "document.getElementById('problems').getBoundingClientRect().bottom"), 300)
            await page.screenshot(SHOTS / "dashboard_problems.png")

    def test_a_fresh_page_shows_what_was_before_it(self) -> None:
        server = self.serve_ready()
        with Load(server, threads=1) as load:
            end = time.monotonic() + WAIT_S
            while len(samples := self.history(server)) < 4:
                self.assertLess(time.monotonic(), end, samples)
                time.sleep(0.2)
            asyncio.run(self.look_back(server, len(samples)))
        self.assertEqual(load.wrong, [])
        before, after = samples[-2:]
        self.assertGreater(after["requests"]["http"], before["requests"]["http"])
        self.assertGreater(sum(after["keys"]), sum(before["keys"]))
        self.assertGreater(sum(after["stages"][0]), sum(before["stages"][0]))

    def history(self, server) -> list[dict]:
        return json.loads(server.get("/api/history")[1])["samples"]

    async def look_back(self, server, count: int) -> None:
        async with browser.open_page(f"http://{server.http}/") as page:
            await page.until(HAS_CHARTS)
            points = await page.evaluate("document.querySelector('#chart-requests .series')"
                                         ".getAttribute('d').match(/[ML]/g).length")
            # Two overviews make a point of the page's own.
            own = sum(url.endswith("/api/overview") for url in page.requests) - 1
            self.assertGreaterEqual(points - own, count - 1)
            for chart in ("latency", "keys", "queue"):
                self.assertTrue(await page.evaluate(
                    f"document.querySelectorAll('#chart-{chart} .series').length > 0"), chart)
            self.assertTrue(await page.evaluate(
                "document.querySelectorAll('#chart-share .band').length > 0"))
            await page.until(f"{tile('Keys')} !== '0/s'")
            self.check_quiet(page, server)

    def test_it_asks_for_the_token(self) -> None:
        server = self.serve_ready(environment={"HPS_TOKEN": TOKEN})
        asyncio.run(self.give_token(server))

    async def type_token(self, page: browser.Page) -> None:
        await page.until("document.getElementById('token-form')?.hidden === false")
        await page.evaluate("document.getElementById('token').focus() ?? true")
        await page.type(TOKEN)
        await page.press("Enter")

    async def give_token(self, server) -> None:
        async with browser.open_page(f"http://{server.http}/") as page:
            await self.type_token(page)
            await page.until("document.getElementById('state-text').textContent === 'ready'")
            self.assertTrue(await page.evaluate("document.getElementById('token-form').hidden"))
            self.assertFalse(any(TOKEN in url for url in page.requests))


if __name__ == "__main__":
    unittest.main()
