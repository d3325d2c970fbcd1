"""The dashboard in a real browser: values move, nothing complains, nothing comes from elsewhere."""

import asyncio
import struct
import unittest

import browser
import support
from load import Load

SHOTS = support.ROOT / "build" / "screenshots"
TOKEN = "the-token-of-the-page"
TILE = "[...document.querySelectorAll('.tile')].find(t => t.querySelector('.name').textContent === "
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

    def test_it_asks_for_the_token(self) -> None:
        server = self.serve_ready(environment={"HPS_TOKEN": TOKEN})
        asyncio.run(self.give_token(server))

    async def give_token(self, server) -> None:
        async with browser.open_page(f"http://{server.http}/") as page:
            await page.until("document.getElementById('token-form')?.hidden === false")
            await page.evaluate("document.getElementById('token').focus() ?? true")
            await page.type(TOKEN)
            await page.press("Enter")
            await page.until("document.getElementById('state-text').textContent === 'ready'")
            self.assertTrue(await page.evaluate("document.getElementById('token-form').hidden"))
            self.assertFalse(any(TOKEN in url for url in page.requests))


if __name__ == "__main__":
    unittest.main()
