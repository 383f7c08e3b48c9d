"""slowapi on ``bolide://``: three requests a day for each client."""

import bolide.contrib.limits  # noqa: F401
from fastapi import FastAPI, Request
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded

limiter = Limiter(lambda request: request.query_params["client"], storage_uri="bolide://")
application = FastAPI()
application.state.limiter = limiter
application.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)


@application.get("/")
@limiter.limit("3/day")
async def index(request: Request):
    return "fine"
