"""An application beside static files: it says that it was asked, and by which method."""

import time

#: Long enough for a client to ask others meanwhile, in seconds.
SLEEP_SECONDS = 0.5


def application(environ, start_response):
    if environ["PATH_INFO"] == "/sleep":
        print("sleeping", flush=True)
        time.sleep(SLEEP_SECONDS)
    method = environ["REQUEST_METHOD"]
    start_response("200 OK", [("Content-Type", "text/plain"), ("X-From", "application"), ("X-Method", method)])
    return [environ["PATH_INFO"].encode("latin-1")]
