"""The routes of the benchmark with Starlette."""

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route


async def index(request):
    return PlainTextResponse("")


async def user(request):
    return PlainTextResponse(request.path_params["name"])


async def create(request):
    return PlainTextResponse("")


app = Starlette(
    routes=[
        Route("/", index, methods=["GET"]),
        Route("/user/{name}", user, methods=["GET"]),
        Route("/user", create, methods=["POST"]),
    ]
)
