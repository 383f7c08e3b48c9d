"""The routes of the benchmark with Litestar."""

from litestar import Litestar, MediaType, get, post


@get("/", media_type=MediaType.TEXT)
async def index() -> str:
    return ""


@get("/user/{name:str}", media_type=MediaType.TEXT)
async def user(name: str) -> str:
    return name


@post("/user", media_type=MediaType.TEXT, status_code=200)
async def create() -> str:
    return ""


app = Litestar([index, user, create], openapi_config=None)
