"""A view that takes as long as its path says, `/view/MICROSECONDS`, and sleeps meanwhile. Runs in the servers' workers."""

import time

from hello import BODY, HEADERS


def application(environ, start_response):
    time.sleep(int(environ["PATH_INFO"].rpartition("/")[2]) / 1e6)
    start_response("200 OK", HEADERS)
    return [BODY]
