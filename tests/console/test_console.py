"""The console in Debian's Chromium: its flows, what it asks for, and who can use it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect

from functions.api.app import describe
from functions.api.console.files import OWN
from tests.console.world import READER, Watched, World, fill, opened, serving
from tests.node import install_packages
from tests.support.emulated_cloud import dev_server

HERE = Path(__file__).parent
PLACES = (
    *("/#/streams", "/#/streams/requests/records", "/#/streams/requests/search", "/#/streams/requests/rollups"),
    *("/#/streams/requests/schema", "/#/streams/requests/status", "/#/topics", "/#/topics/mail/jobs"),
    *("/#/topics/readings/records", "/#/topics/readings/search", "/#/routers", "/#/features", "/#/features/Spend"),
    *("/#/features/Txn", "/#/health"),
)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with serving() as world:
        fill(world, time.time_ns() // 1_000_000)
        yield world


@pytest.fixture(scope="module")
def session(world: World, browser: Browser) -> Iterator[Watched]:
    """A page that has the key. Tests share it, since a new one costs a third of a second of CPU."""
    with opened(browser, world) as watched:
        yield watched


@pytest.fixture
def console(session: Watched) -> Iterator[Watched]:
    """The shared page, light and 1280 pixels wide. Nothing may be wrong with it in the end."""
    session.page.emulate_media(color_scheme="light")
    session.page.set_viewport_size({"width": 1280, "height": 720})
    yield session
    session.check()


def test_without_a_key_it_asks_for_one_and_says_when_it_is_wrong(world: World, browser: Browser) -> None:
    watched = Watched(browser.new_page(), world)
    watched.go("/")
    dialog = watched.page.get_by_role("dialog")
    expect(dialog).to_contain_text("This server needs a key.")
    watched.enter_key("wrong")
    expect(dialog).to_contain_text("The server does not accept this key.")
    watched.enter_key(READER)
    expect(watched.page.get_by_role("link", name="requests")).to_be_visible()
    assert watched.page.evaluate("[sessionStorage.getItem('headrace.key'), localStorage.length]") == [READER, 1]
    watched.page.keyboard.press("c")
    dialog.get_by_label("Name").fill("mine")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("this key lacks the scope: admin")
    watched.check()
    watched.page.close()


def test_a_stream_is_created_found_by_name_and_its_tail_is_live(console: Watched) -> None:
    page = console.page
    console.go("/")
    page.keyboard.press("c")
    page.get_by_label("Name", exact=True).fill("new/stream")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="new/stream")).to_be_visible()
    tail = page.get_by_role("region", name="Records")
    page.get_by_label("Append: a JSON value").fill('[{"n": 1.50}, "<b>no markup</b>"]')
    page.get_by_role("button", name="Append").click()
    expect(tail.get_by_role("row")).to_contain_text(["record", '0{"n":1.50}', "1<b>no markup</b>"])
    console.world.ask("POST", "/v1/stream/new/stream", [{"from": "elsewhere"}])
    expect(tail.get_by_role("row").last).to_contain_text('2{"from":"elsewhere"}')
    page.get_by_role("button", name="Pause").click()
    console.world.ask("POST", "/v1/stream/new/stream", [{"n": 4}])
    page.get_by_role("button", name="Resume").click()
    expect(tail.get_by_role("row")).to_contain_text(["record", "0", "1", "2", '3{"n":4}'])
    page.get_by_role("link", name="Streams").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Streams")
    page.keyboard.press("/")
    page.keyboard.type("new/")
    expect(page.get_by_role("status").first).to_have_text("1")
    page.get_by_role("link", name="new/stream").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(
        page.get_by_text("There are no streams", exact=False).or_(page.get_by_role("link", name="requests"))
    ).to_be_visible()


def test_a_search_has_hints_orders_and_pages(console: Watched) -> None:
    page = console.page
    console.go("/#/streams/requests/search")
    expect(page.get_by_text("240 found")).to_be_visible()
    page.get_by_label("Query").fill("sta")
    page.get_by_role("group", name="What can be written").get_by_role("button", name="status:>=").click()
    page.keyboard.type("500")
    page.get_by_role("combobox", name="Order").select_option("ms:desc")
    expect(page.get_by_text("14 found")).to_be_visible()
    cells = page.get_by_role("region", name="Hits").get_by_role("row").nth(1).get_by_role("cell")
    expect(cells).to_contain_text(["139", "", "search", "503", "93.5", "checkout"])
    page.get_by_label("Query").fill("nonsense:(")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_contain_text("400")
    page.get_by_label("Query").fill("")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("button", name="More").click()
    expect(page.get_by_role("region", name="Hits").get_by_role("row")).to_have_count(101)


def test_a_rollup_is_drawn_and_told_in_numbers(console: Watched) -> None:
    page = console.page
    console.go("/#/streams/requests/rollups")
    expect(page.get_by_role("img", name="Rollup requests by 1m")).to_be_visible()
    page.get_by_role("combobox", name="Time").select_option("last 24 hours")
    page.get_by_role("combobox", name="Interval").select_option("1h")
    page.get_by_role("combobox", name="Grouped by").select_option("status")
    expect(page.get_by_role("region", name="By interval").get_by_role("columnheader")).to_have_text(
        ["interval", "200", "404", "503"]
    )
    rows = page.get_by_role("region", name="By interval").get_by_role("row").all()[1:]
    numbers = [[int(cell) for cell in row.get_by_role("cell").all_inner_texts()[1:]] for row in rows]
    assert [sum(column) for column in zip(*numbers, strict=True)] == [208, 18, 14]


def test_a_queue_shows_its_leases_and_tries_the_chosen_dead_letter_again(console: Watched) -> None:
    page = console.page
    console.go("/#/topics/mail/jobs")
    depth = page.locator(".big")
    expect(depth).to_have_text("ready4leased3dead-lettered2")
    leases = page.get_by_role("region", name="Leases").get_by_role("row")
    expect(leases).to_contain_text(["worker", "3worker-2", "4worker-2", "5worker-2"])
    letters = page.get_by_role("region", name="Dead letters")
    expect(letters.get_by_role("row")).to_contain_text(["data", '{"to":"user-0","cents":21.50}', "user-1"])
    letters.get_by_role("button", name="Retry 2").click()
    expect(letters.get_by_role("row")).to_contain_text(["data", "user-0"])
    expect(depth).to_contain_text("ready5")
    letters.get_by_role("button", name="Retry 1").click()
    expect(depth).to_contain_text("ready6")
    answer = console.world.ask("POST", "/v0/topics/mail/search", {"q": "NOT has:tag", "size": 1})
    assert answer["hits"][0]["data"] == {"to": "user-0", "cents": 21.5}
    expect(page.get_by_role("img", name="Jobs by what became of them")).to_be_visible()


def test_features_are_looked_up_and_events_are_found(console: Watched) -> None:
    page = console.page
    console.go("/#/features")
    page.get_by_role("link", name="Spend").click()
    page.get_by_label("user_id").fill("alice")
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_role("region", name="Features").get_by_role("row")).to_contain_text(
        ["value", "tx_count_1h2", "tx_sum_1h42.5"]
    )
    page.get_by_label("user_id").fill("nobody")
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_text("No event has this key.")).to_be_visible()
    page.get_by_role("link", name="Txn").click()
    page.get_by_label("Query").fill("user_id:alice amount:>20")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("1 found")).to_be_visible()


def test_the_keyboard_goes_everywhere(console: Watched) -> None:
    page = console.page
    console.go("/")
    expect(page.get_by_role("link", name="requests")).to_be_visible()
    for keys, heading in (("gt", "Topics and queues"), ("gr", "Routers"), ("gf", "Feature tables"), ("gh", "Health")):
        page.keyboard.type(keys)
        expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    page.keyboard.type("gr")
    expect(page.get_by_role("group", name="Graph of routers").get_by_role("link")).to_have_text(
        ["readings", "alarms", "archive", "pages"]
    )
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def violations(console: Watched) -> list[dict[str, Any]]:
    """Returns what axe finds in the page as it is."""
    if not console.page.evaluate("'axe' in window"):
        console.page.evaluate((HERE / "node_modules/axe-core/axe.min.js").read_text())
    found: list[dict[str, Any]] = console.page.evaluate("axe.run().then((seen) => seen.violations)")
    return [{"rule": one["id"], "where": [node["html"] for node in one["nodes"]]} for one in found]


def test_the_client_in_the_tree_is_what_the_locked_package_gives() -> None:
    install_packages(HERE)
    made = subprocess.run(["node", "bundle.mjs"], cwd=HERE, capture_output=True, check=True, timeout=60)
    assert made.stdout == (OWN / "durable-streams.js").read_bytes(), "its first lines say how it is made again"


@pytest.mark.parametrize(
    "colours",
    ["light", pytest.param("dark", marks=pytest.mark.full)],  # axe takes a second of CPU for each page
)
@pytest.mark.parametrize(
    "place",
    [place if place in PLACES[1:3] else pytest.param(place, marks=pytest.mark.full) for place in PLACES],
)
def test_axe_finds_nothing(console: Watched, place: str, colours: Literal["light", "dark"]) -> None:
    install_packages(HERE)
    console.page.emulate_media(color_scheme=colours)
    console.go(place)
    console.page.wait_for_load_state("networkidle" if "records" not in place and "jobs" not in place else "load")
    expect(console.page.get_by_role("heading", level=1)).to_be_visible()
    assert violations(console) == []


def test_the_reference_sends_its_examples_with_the_key(console: Watched) -> None:
    page = console.page
    console.go("/docs")
    tags = page.locator(".opblock-tag a span")
    expect(tags.first).to_have_text("streams")
    assert tags.all_inner_texts() == [tag["name"] for tag in describe()["tags"]]
    page.locator("#operations-tag-topics").click()
    operation = page.locator("#operations-topics-putTopic")
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table .response-col_status").last).to_contain_text("201")
    assert console.world.ask("GET", "/v0/topics/jobs")["type"] == "queue"


@pytest.mark.full  # two emulators
@pytest.mark.parametrize("options", [(), ("--function-url", "--api-processes", "4")], ids=["a server", "Lambda"])
def test_the_console_of_an_emulator_follows_a_stream(browser: Browser, options: tuple[str, ...]) -> None:
    with dev_server(*options) as server:
        watched = Watched(browser.new_page(), World(server.url))
        page = watched.page
        watched.go("/")
        page.keyboard.press("c")
        page.get_by_label("Name", exact=True).fill("live")
        page.get_by_role("dialog").get_by_role("button", name="Create").click()
        tail = page.get_by_role("region", name="Records")
        expect(page.get_by_role("heading", name="live")).to_be_visible()
        for n in range(3):
            watched.world.ask("POST", "/v1/stream/live", {"n": n})
            expect(tail.get_by_role("row").last).to_contain_text(f'{n}{{"n":{n}}}')
        watched.go("/docs")
        expect(page.locator(".opblock-tag a span").first).to_have_text("streams")
        page.close()
        assert watched.problems == []
