"""The console in Debian's Chromium: its flows, what it asks for, and who can use it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect

from functions.api.app import describe
from functions.api.console.files import OWN
from tests.console.world import KEY, READER, Watched, World, fill, opened, serving
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
    """A page at the server. Tests share it, since a new one costs half a second of CPU."""
    with opened(browser, world, key="") as watched:
        watched.go("/console/any/icon.svg")
        yield watched


@pytest.fixture
def console(session: Watched) -> Iterator[Watched]:
    """The shared page with the key, light, 1280 pixels wide. Nothing may be wrong with it in the end."""
    session.set_key(KEY)
    session.page.emulate_media(color_scheme="light")
    session.page.set_viewport_size({"width": 1280, "height": 720})
    yield session
    session.check()


def test_without_a_key_it_asks_for_one_and_says_when_it_is_wrong(session: Watched) -> None:
    page = session.page
    session.set_key("")
    session.go("/")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This server needs a key.")
    session.enter_key("wrong")
    expect(dialog).to_contain_text("The server does not accept this key.")
    session.enter_key(READER)
    expect(page.get_by_role("link", name="requests")).to_be_visible()
    assert page.evaluate("[sessionStorage.getItem('headrace.key'), localStorage.length]") == [READER, 1]
    page.keyboard.press("c")
    dialog.get_by_label("Name").fill("mine")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("this key lacks the scope: admin")
    session.check()


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
    install_packages(HERE)
    page = console.page
    console.go("/#/streams/requests/search")
    expect(page.get_by_text("240 found")).to_be_visible()
    assert violations(console) == []
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
    rows = page.get_by_role("region", name="By interval").get_by_role("row")
    cells = [row.get_by_role("cell").all_inner_texts()[1:] for row in rows.all()[1:]]
    numbers = [[int(cell.replace("–", "0")) for cell in row] for row in cells]
    assert [sum(column) for column in zip(*numbers, strict=True)] == [208, 18, 14]
    page.get_by_role("combobox", name="Time").select_option("all records")
    page.get_by_role("combobox", name="Interval").select_option("1m")
    expect(rows.nth(60)).to_be_visible()


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
    expect(page.get_by_role("img", name="Outcomes by hour")).to_be_visible()


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
    page.goto(console.world.url + "/#/streams/nothing")
    expect(page.get_by_role("alert")).to_contain_text("404")
    page.get_by_role("link", name="Streams").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Streams")
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


LOOKS = {"light": (1280, 720), "dark": (1280, 720), "phone": (390, 844)}


@pytest.mark.full  # axe takes a second of CPU for each
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("place", PLACES)
def test_axe_finds_nothing_and_the_page_is_not_wider_than_the_window(console: Watched, place: str, look: str) -> None:
    install_packages(HERE)
    page = console.page
    width, height = LOOKS[look]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme="dark" if look == "dark" else "light")
    console.go(place)
    page.wait_for_load_state("networkidle" if "records" not in place and "jobs" not in place else "load")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert violations(console) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_reference_shows_the_document(console: Watched) -> None:
    document = describe()
    some = {path: item for path, item in document["paths"].items() if path.startswith("/v0/routers")}
    # All of it takes another second of CPU.
    console.page.route("**/openapi.json", lambda route: route.fulfill(json=document | {"paths": some}))
    console.go("/docs")
    expect(console.page.locator(".opblock-tag a span").first).to_have_text("streams")
    console.page.unroute("**/openapi.json")


# What axe finds in Swagger UI and CSS or attributes can't mend, by rule.
KNOWN = {"nested-interactive": "the button that opens an operation has a link to the operation in it"}


@pytest.mark.full
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_the_reference_sends_its_examples_with_the_key_and_axe_finds_nothing_new(
    world: World, browser: Browser, colours: Literal["light", "dark"]
) -> None:
    install_packages(HERE)
    with opened(browser, world, color_scheme=colours, reduced_motion="reduce") as watched:
        page = watched.page
        watched.go("/docs")
        tags = page.locator(".opblock-tag a span")
        expect(tags.first).to_have_text("streams")
        assert tags.all_inner_texts() == [tag["name"] for tag in describe()["tags"]]
        for tag in ("streams", "topics", "features"):
            page.locator(f"#operations-tag-{tag}").click()
        for opened_too in ("streams-readStream", "streams-deleteStream", "topics-deleteRecords"):
            page.locator(f"#operations-{opened_too} .opblock-summary-control").click()
        operation = page.locator("#operations-topics-putTopic")
        operation.locator(".opblock-summary-control").click()
        operation.get_by_role("button", name="Try it out").click()
        operation.get_by_role("button", name="Execute").click()
        expect(operation.locator(".live-responses-table .response-col_status").last).to_contain_text("20")
        assert watched.world.ask("GET", "/v0/topics/jobs")["type"] == "queue"
        found = [one for one in violations(watched) if one["rule"] not in KNOWN]
        assert found == []
        watched.check()


@pytest.mark.full
def test_an_empty_server_says_what_to_try_first(browser: Browser) -> None:
    install_packages(HERE)
    with serving() as world, opened(browser, world, color_scheme="dark") as watched:
        page = watched.page
        for place, name in (("/#/topics", "readings"), ("/#/streams", "orders")):
            watched.go(place)
            commands = page.locator("main pre").inner_text()
            assert violations(watched) == []
            done = subprocess.run(
                ["bash", "-ec", commands], env=os.environ | {"KEY": KEY}, capture_output=True, text=True, check=True
            )
            assert "error" not in done.stdout
            page.reload()
            page.get_by_role("link", name=name).click()
            expect(page.get_by_role("region", name="Records").get_by_role("row")).to_have_count(2)
        for place in ("/#/routers", "/#/features", "/#/health"):
            watched.go(place)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            page.wait_for_load_state("networkidle")
            assert violations(watched) == []
        watched.check()


@pytest.mark.full
def test_a_server_that_went_away_is_told_of_and_followed_again(browser: Browser) -> None:
    with serving() as world, opened(browser, world) as watched:
        world.ask("PUT", "/v1/stream/s")
        world.ask("POST", "/v1/stream/s", [1])
        world.ask("PUT", "/v0/topics/q", {"type": "queue"})
        page, context = watched.page, watched.page.context
        away = "the server does not answer"
        watched.go("/#/streams/s/records")
        rows, status = page.get_by_role("region", name="Records").get_by_role("row"), page.get_by_role("status")
        expect(rows).to_have_count(2)
        page.get_by_role("button", name="Pause").click()
        context.set_offline(True)
        page.get_by_role("button", name="Resume").click()
        expect(status).to_have_text(f"{away}; trying again")
        world.ask("POST", "/v1/stream/s", [2])
        context.set_offline(False)
        expect(rows).to_contain_text(["record", "1", "2"])
        expect(status).to_have_text("live, 2 seen")
        for place in ("/#/health", "/#/topics/q/jobs", "/#/topics"):
            watched.go(place)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            page.wait_for_load_state("networkidle")
            context.set_offline(True)
            if place == "/#/topics":
                page.get_by_label("Name begins with").fill("q")
            expect(page.get_by_text(away).first).to_be_visible()
            context.set_offline(False)
            if place == "/#/topics":
                page.get_by_label("Name begins with").fill("")
            expect(page.get_by_text(away)).to_have_count(0)
        watched.check()


@pytest.mark.full
def test_a_tail_begins_where_a_retention_has_left_records(console: Watched) -> None:
    console.world.ask("PUT", "/v1/stream/short", **{"Stream-Retention-Bytes": "100"})
    for n in range(60):
        console.world.ask("POST", "/v1/stream/short", {"n": n})
    console.go("/#/streams/short/records")
    rows = console.page.get_by_role("region", name="Records").get_by_role("row")
    expect(rows.last).to_contain_text('59{"n":59}')
    assert 10 < rows.count() < 30


@pytest.mark.full
def test_of_many_streams_a_page_is_shown(console: Watched) -> None:
    for n in range(120):
        console.world.ask("PUT", f"/v1/stream/many-{n:03}")
    page = console.page
    console.go("/#/streams")
    with page.expect_response(lambda answer: "prefix=many-" in answer.url):
        page.get_by_label("Name begins with").fill("many-")
    expect(page.get_by_role("status")).to_have_text("100 or more")
    page.get_by_role("button", name="More").click()
    expect(page.get_by_role("status")).to_have_text("120")
    page.get_by_label("Name begins with").fill("many-11")
    expect(page.get_by_role("region", name="Streams").get_by_role("row")).to_have_count(11)


@pytest.mark.full
def test_a_stream_is_created_filled_and_left_with_the_keyboard_alone(console: Watched) -> None:
    page = console.page
    console.go("/#/streams")
    expect(page.get_by_role("status")).not_to_be_empty()
    page.keyboard.type("c")
    page.keyboard.type("typed\n")
    expect(page.get_by_role("heading", name="typed")).to_be_visible()
    body = page.get_by_label("Append: a JSON value")
    expect(body).to_be_visible()
    for _ in range(20):
        page.keyboard.press("Tab")
        if body.evaluate("element => element === document.activeElement"):
            break
    page.keyboard.type('{"by":"keyboard"}')
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Records").get_by_role("row").last).to_contain_text('{"by":"keyboard"}')
    page.keyboard.press("Tab")
    page.keyboard.type("gt")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics and queues")


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
