"""A browser loads a page from static files: images, a style sheet, a script, and a seekable video."""

import re
import struct
import zlib

import pytest
from support.browser import BROWSER_SECONDS, chromium
from support.files import fill
from support.video import FRAMES_PER_SECOND, grey_at, video
from support.waiting import wait_until

pytestmark = pytest.mark.timeout(4 * BROWSER_SECONDS)

VIDEO_SECONDS = 30
IMAGES = 12
IMAGE_PIXELS = 40
#: Tolerance for the browser's color conversion: less than half of the step between two frames.
GREY_TOLERANCE = 1.9

PAGE = """<!doctype html>
<html><head><meta charset="utf-8"><title>files</title>
<link rel="stylesheet" href="site.css"><script type="module" src="site.mjs"></script></head>
<body><h1 id="heading">Grüße</h1>%s<video id="video" src="film.mp4" preload="metadata" muted></video></body></html>
"""

SEEK = """
const [seconds, frame, done] = arguments, video = document.getElementById("video");
video.addEventListener("error", () => done({ error: video.error.code + " " + video.error.message }));
// "seeked" may come before the picture is there: it is shown when the frame of that moment is.
const look = (now, shown) => {
    if (Math.abs(shown.mediaTime - seconds) > frame) return video.requestVideoFrameCallback(look);
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
    const pen = canvas.getContext("2d");
    pen.drawImage(video, 0, 0);
    const pixel = pen.getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data;
    done({ at: video.currentTime, red: pixel[0], duration: video.duration, width: video.videoWidth });
};
video.requestVideoFrameCallback(look);
video.currentTime = seconds;
"""


def picture(number):
    """Returns a PNG of one color."""
    row = b"\0" + bytes([number * 16, 80, 160]) * IMAGE_PIXELS

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", IMAGE_PIXELS, IMAGE_PIXELS, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(row * IMAGE_PIXELS))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


@pytest.fixture(scope="module")
def server(serve_module):
    server = serve_module.prepare("wsgi-file = {apps}/static_front.py\nstatic-map = /s=files\nstatic-index = index.html")
    images = "".join(f'<img id="image{number}" src="images/{number}.png">' for number in range(IMAGES))
    files = {
        "index.html": (PAGE % images).encode(),
        "site.css": b"h1 { color: rgb(1, 2, 3); }",
        "site.mjs": b"document.body.dataset.script = 'ran';",
        "film.mp4": video(VIDEO_SECONDS),
    }
    fill(server.directory / "files", {**files, **{f"images/{number}.png": picture(number) for number in range(IMAGES)}})
    return server.start()


@pytest.fixture(scope="module")
def browser(server):
    with chromium() as browser:
        # Without the slash: relative links are right only if the directory is redirected.
        browser.get(f"http://127.0.0.1:{server.port}/s")
        yield browser


def statuses(server, path):
    """Returns the statuses of the responses for a path, from the log."""
    line = re.compile(rf"GET {re.escape(path)} => generated .* \(HTTP/1\.1 (\d+)\)")
    return [int(status) for status in line.findall(server.log)]


def test_a_page_has_its_images_its_style_and_its_script(server, browser):
    assert browser.title == "files"
    assert browser.find_element("id", "heading").text == "Grüße"
    loaded = "return [...document.images].map(image => image.complete && image.naturalWidth)"
    assert browser.execute_script(loaded) == [IMAGE_PIXELS] * IMAGES
    assert browser.execute_script("return getComputedStyle(document.querySelector('h1')).color") == "rgb(1, 2, 3)"
    # A module runs only if its media type is JavaScript.
    assert browser.execute_script("return document.body.dataset.script") == "ran"
    # The browser's implicit requests go to the application.
    assert [line for line in browser.console() if "favicon" not in line] == []


@pytest.mark.parametrize("seconds", [29.5, 3.1, 17.7, 0.5])
def test_a_video_seeks(server, browser, seconds):
    # In the middle of a frame.
    seconds += 0.5 / FRAMES_PER_SECOND
    seen = browser.execute_async_script(SEEK, seconds, 1 / FRAMES_PER_SECOND)
    assert "error" not in seen, seen
    assert seen["at"] == pytest.approx(seconds, abs=0.001)
    assert seen["duration"] == pytest.approx(VIDEO_SECONDS, abs=0.1)
    assert seen["red"] == pytest.approx(as_shown(grey_at(seconds)), abs=GREY_TOLERANCE * 255 / 219)
    wait_until(lambda: 206 in statuses(server, "/s/film.mp4"), "parts of the video were asked for")


def test_a_page_that_is_loaded_again_is_not_sent_again(server, browser):
    browser.refresh()
    wait_until(lambda: 304 in statuses(server, "/s/"), lambda: f"the page has not changed: {statuses(server, '/s/')}")
    assert browser.find_element("id", "heading").text == "Grüße"


def as_shown(luma):
    """Returns the red component of a gray of this luma (ITU-R BT.601: 16 is black, 235 is white)."""
    return (luma - 16) * 255 / 219
