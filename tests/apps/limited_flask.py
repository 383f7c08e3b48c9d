"""Flask-Limiter on ``bolide://``: two requests a day on ``/two``, by the fixed window, and on ``/sliding`` three by the sliding
one. ``/expiry`` says whether a window of the storage ends within the hour that it has, and ``/clear`` empties it."""

import time

import bolide.contrib.limits
from flask import Flask, request
from flask_limiter import Limiter
from limits import parse
from limits.strategies import SlidingWindowCounterRateLimiter

application = Flask(__name__)


def client():
    return request.args.get("client", "")


limiter = Limiter(client, app=application, storage_uri="bolide://limits", strategy="fixed-window", headers_enabled=True)
storage = bolide.contrib.limits.SharedCacheStorage("bolide://limits", prefix="other:")
sliding = SlidingWindowCounterRateLimiter(storage)


@application.get("/two")
@limiter.limit("2 per day")
def two():
    return "fine"


@application.get("/sliding")
def slide():
    return "fine" if sliding.hit(parse("3/day"), client()) else ("too many", 429)


@application.get("/expiry")
def expiry():
    # limits 5 calls it like the first, and limits 4 like the second.
    counts = [storage.incr("hour", 3600, amount=1), storage.incr("hour", 3600, elastic_expiry=False, amount=1)]
    counts.append(storage.incr("hour", 3600))
    left_s = storage.get_expiry("hour") - time.time()
    return f"{counts} {storage.get('hour')} {3590 < left_s <= 3600} {storage.check()}"


@application.get("/clear")
def clear():
    storage.clear("hour")
    stats = sliding.get_window_stats(parse("3/day"), client())
    return f"{storage.get('hour')} {stats.remaining} {storage.reset() > 0} {sliding.test(parse('3/day'), client())}"
