"""Chromium over its DevTools protocol: a page from a file, without network, in real time."""

import asyncio
import shutil
from asyncio.subprocess import PIPE

from aiohttp import ClientSession

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0")
SAID = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
HELPERS = """
const get = (id) => document.getElementById(id);
const all = (selector) => [...document.querySelectorAll(selector)];
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const until = async (holds) => {
  for (let k = 0; k < 200 && !holds(); k += 1) await wait(25);
  return holds();
};
const drawing = (place) => place.querySelector("svg.marks, canvas.marks");
const named = (name) => drawing(document.querySelector(`[data-chart="${name}"]`));
// The marks of a chart, in any order; what Vega keeps of an earlier state is left out.
const svg = (name) => named(name).innerHTML
  .replace(/<defs>.*?<.defs>|gradient_[0-9]+|aria-label="[^"]*"/gs, "").split("<").sort().join("<");
const picture = (name) => named(name).toDataURL ? named(name).toDataURL() : svg(name);
const scroll = async (place) => { place.scrollIntoView(); return until(() => drawing(place)); };
const set = (id, value) => {
  get(id).value = value;
  get(id).dispatchEvent(new Event("input", { bubbles: true }));
};
// Whether a control changes charts, and whether they are as before when it is set back.
const changes = async (id, value, ...names) => {
  const old = get(id).value, before = names.map(picture);
  set(id, value);
  const changed = await until(() => names.every((name, k) => picture(name) !== before[k]));
  set(id, old);
  return [changed, await until(() => names.every((name, k) => picture(name) === before[k]))];
};
const open = (yes) => all("main details").forEach((part) => {
  if (!part.closest(".vega-embed")) part.open = yes;
});
await until(() => document.readyState === "complete");
"""
PHONE = """
open(true);
for (const place of all(".chart")) await scroll(place);
const ends = (part) => part.getBoundingClientRect().right > innerWidth + 1;
return {
  wide: all("main *").filter((part) => !part.closest(".scroll, svg, pre") && ends(part)).map(
    (part) => part.outerHTML.slice(0, 80)),
  scrolls: document.documentElement.scrollWidth > innerWidth,
  own: all(".scroll").filter((box) => box.scrollWidth > box.clientWidth).length,
};
"""


def used(page, *scripts):
    """What scripts find on a page, each at a width; what the browser said and asked for."""
    return asyncio.run(asyncio.wait_for(_used(page, scripts), timeout=120))


async def _used(page, scripts):
    own = f"--user-data-dir={page.parent}/profile"
    browser = await asyncio.create_subprocess_exec(
        CHROMIUM, *OPTIONS, own, "about:blank", stderr=PIPE
    )
    try:
        async for line in browser.stderr:
            if b"DevTools listening on ws://" in line:
                break
        host = line.decode().split("/")[2]
        async with ClientSession() as session:
            async with session.get(f"http://{host}/json") as answer:
                tab = next(one for one in await answer.json() if one["type"] == "page")
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                return await _found(socket, page, scripts)
    finally:
        browser.kill()
        await browser.wait()


async def _found(socket, page, scripts):
    events, found = [], []

    async def call(method, **params):
        number = len(events)
        await socket.send_json({"id": number, "method": method, "params": params})
        while not events or events[-1].get("id") != number:
            events.append(await socket.receive_json())
        return events[-1]["result"]

    for domain in ("Runtime", "Log", "Network"):
        await call(f"{domain}.enable")
    for width, script in scripts:
        screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        await call("Emulation.setDeviceMetricsOverride", **screen)
        if not found:
            await call("Page.navigate", url=page.as_uri())
        code = f"(async () => {{ {HELPERS} {script} }})()"
        given = {"expression": code, "awaitPromise": True, "returnByValue": True}
        answer = await call("Runtime.evaluate", **given)
        assert "exceptionDetails" not in answer, answer
        found.append(answer["result"].get("value"))
    said = [event for event in events if event.get("method") in SAID]
    sent = [e["params"] for e in events if e.get("method") == "Network.requestWillBeSent"]
    asked = [one["request"]["url"] for one in sent]
    return found, said, [url for url in asked if not url.startswith(("data:", page.as_uri()))]
