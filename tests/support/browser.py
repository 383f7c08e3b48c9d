"""A real browser: Debian's headless Chromium, controlled by chromedriver. None of its processes outlives the test.

It does not connect to other machines: driver and browser listen on 127.0.0.1, and pages cannot resolve other hosts.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.remote_connection import ChromeRemoteConnection
from selenium.webdriver.common.proxy import Proxy, ProxyType
from selenium.webdriver.remote.client_config import ClientConfig
from selenium.webdriver.remote.command import Command

from support import processes
from support.waiting import LOOK_SECONDS, TIMEOUT_SECONDS, wait_until

#: Timeout of a start of the browser, of a page's load and of a script, in seconds.
BROWSER_SECONDS = 120

#: Size of the window that the pages see, in pixels.
WINDOW = "1000,800"

#: chromedriver chooses a port that is free for IPv6, and exits if the port is in use for IPv4. Then it is started again.
PORT_TRIES = 5

#: The line in which the driver prints its port.
STARTED = re.compile(rb"started successfully on port (?P<port>\d+)")

FLAGS = (
    "--headless=new",
    # CI runs as root, in a container.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    f"--window-size={WINDOW}",
    "--no-first-run",
    "--disable-extensions",
    "--disable-sync",
    "--disable-component-update",
    "--disable-background-networking",
    # Background windows must not throttle timers and frames.
    "--disable-renderer-backgrounding",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    # Videos play without a click.
    "--autoplay-policy=no-user-gesture-required",
)


def found(name):
    """Returns the path of a program of Debian's packages chromium and chromium-driver."""
    path = shutil.which(name)
    assert path, f"there is no {name}: install the packages chromium and chromium-driver"
    return path


class Driver:
    """`chromedriver`, on a port that it chooses."""

    def __init__(self, directory):
        # The browser's data goes to the test's directory.
        self._places = {
            name: str(directory) for name in ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
        }
        self._mark = f"HOME={directory}".encode()
        self.url = None
        for _ in range(PORT_TRIES):
            self._start()
            if self.url is not None:
                return
            assert b"Address already in use" in self._text, f"the driver does not start: {self._text!r}"
        raise AssertionError(f"the driver has found no port: {self._text!r}")

    def _start(self):
        self._text = b""
        self.process = subprocess.Popen(
            [found("chromedriver"), "--port=0"],
            env={**os.environ, **self._places},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._read, name="driver's log reader", daemon=True)
        self._reader.start()
        end = time.monotonic() + BROWSER_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            match = STARTED.search(self._text)
            if match:
                self.url = f"http://127.0.0.1:{int(match['port'])}"
                return
            self._reader.join(LOOK_SECONDS)
        self.finish()

    def _read(self):
        for line in self.process.stdout:
            self._text += line

    def finish(self):
        """Ends it and all processes that it has started."""
        self.process.terminate()
        try:
            wait_until(lambda: not self._left(), "the browser has ended", seconds=TIMEOUT_SECONDS)
        finally:
            for pid in self._left():
                processes.kill(pid)
            self.process.wait()
            self._reader.join(TIMEOUT_SECONDS)
            self.process.stdout.close()

    def _left(self):
        # Some of the browser's processes have separate sessions, but the environment of all contains the directory.
        self.process.poll()
        return [
            pid for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()) if self._mark in environment_of(pid)
        ]


def environment_of(pid):
    """Returns the environment that a process was started with; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


class Browser(webdriver.Remote):
    """Selenium's driver, and the page's console."""

    def console(self):
        """Returns the console lines since the last call: output of scripts, uncaught errors, network failures."""
        return [f"{entry['level']} {entry['message']}" for entry in self.execute(Command.GET_LOG, {"type": "browser"})["value"]]


@contextlib.contextmanager
def chromium(*flags):
    """A new :class:`Browser`, which ends with the block. ``flags`` are added to its command line."""
    with tempfile.TemporaryDirectory(prefix="browser-") as name:
        directory = Path(name)
        options = webdriver.ChromeOptions()
        options.binary_location = found("chromium")
        for flag in (*FLAGS, f"--user-data-dir={directory / 'profile'}", *flags):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = Driver(directory)
        try:
            url = driver.url
            direct = Proxy({"proxyType": ProxyType.DIRECT})
            client = ClientConfig(remote_server_addr=url, timeout=BROWSER_SECONDS, proxy=direct)
            browser = Browser(command_executor=ChromeRemoteConnection(url, client_config=client), options=options)
            try:
                browser.set_page_load_timeout(BROWSER_SECONDS)
                browser.set_script_timeout(BROWSER_SECONDS)
                yield browser
            finally:
                browser.quit()
        finally:
            driver.finish()
