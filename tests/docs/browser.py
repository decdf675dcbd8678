"""A headless Chromium, driven through its debugging pipe with the standard library alone."""
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]


class BrowserError(Exception):
    """The browser did not start, did not answer in time, or ended."""


def find():
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser. `noted` has the events since the last clear."""

    def __init__(self, program, seconds=30):
        self.seconds, self.number, self.noted = seconds, 0, []
        self.buffer = b""
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        # The browser reads commands from descriptor 3 and answers on descriptor 4.
        script = f"exec 3<&{to_browser} 4>&{from_browser}; exec \"$@\""
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--remote-debugging-pipe", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--mute-audio",
                 "--window-size=1280,1000", f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", script, "bash", program, *flags],
                                        pass_fds=(to_browser, from_browser),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.read_end)
        os.close(self.write_end)
        self.profile.cleanup()

    def message(self, until):
        while b"\0" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                raise BrowserError(f"the browser did not answer in {self.seconds} s")
            piece = os.read(self.read_end, 1 << 16)
            if not piece:
                raise BrowserError("the browser ended")
            self.buffer += piece
        text, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data):]
        until = time.monotonic() + self.seconds
        while True:
            message = self.message(until)
            if message.get("id") == self.number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.noted.append(message)

    def open(self, address):
        """Shows a page, and waits until all of it is there."""
        self.noted.clear()
        self.call("Page.navigate", url=address)
        until = time.monotonic() + self.seconds
        while not any(event.get("method") == "Page.loadEventFired" for event in self.noted):
            self.noted.append(self.message(until))

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def wait_for(self, script):
        """The value of an expression, once it is true."""
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            if value := self.evaluate(script):
                return value
            time.sleep(0.05)
        return None

    def errors(self):
        """What the page complained of since it was opened, and addresses it fetched elsewhere."""
        for event in self.noted:
            method, about = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = about["exceptionDetails"]
                yield details.get("exception", {}).get("description", details["text"])
            elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert"):
                yield " ".join(str(each.get("value", each.get("description")))
                               for each in about["args"])
            elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
                yield f"{about['entry']['text']} {about['entry'].get('url', '')}"
            elif method == "Network.loadingFailed" and not about.get("canceled"):
                yield f"a fetch failed: {about['errorText']}"

    def fetched(self):
        return [event["params"]["request"]["url"] for event in self.noted
                if event.get("method") == "Network.requestWillBeSent"]


@contextlib.contextmanager
def started(program):
    browser = Browser(program)
    try:
        yield browser
    finally:
        browser.close()
