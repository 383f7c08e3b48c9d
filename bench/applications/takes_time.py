"""A view that sleeps for the time in its path, `/view/MICROSECONDS`. Runs in the servers' workers."""

import time

from hello import BODY, HEADERS


def application(environ, start_response):
    time.sleep(int(environ["PATH_INFO"].rpartition("/")[2]) / 1e6)
    start_response("200 OK", HEADERS)
    return [BODY]
