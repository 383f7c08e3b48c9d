"""An application beside static files: it returns the method, so that tests see which requests reach it."""

import time

#: Long enough for a client to send more requests in the meantime, in seconds.
SLEEP_SECONDS = 0.5


def application(environ, start_response):
    if environ["PATH_INFO"] == "/sleep":
        print("sleeping", flush=True)
        time.sleep(SLEEP_SECONDS)
    method = environ["REQUEST_METHOD"]
    start_response("200 OK", [("Content-Type", "text/plain"), ("X-From", "application"), ("X-Method", method)])
    return [environ["PATH_INFO"].encode("latin-1")]
