"""The routes of the benchmark with BlackSheep."""

from blacksheep import Application, get, post, text

app = Application()


@get("/")
async def index():
    return text("")


@get("/user/{name}")
async def user(name: str):
    return text(name)


@post("/user")
async def create():
    return text("")
