"""A JSON view of Starlette with a path parameter. Runs in the servers' workers."""

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


async def greet(request):
    return JSONResponse({"greeting": f"Hello, {request.path_params['name']}!", "items": [1, 2, 3]})


application = Starlette(routes=[Route("/hello/{name}", greet)])
