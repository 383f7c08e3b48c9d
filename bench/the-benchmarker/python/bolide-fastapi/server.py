"""The routes of the benchmark with FastAPI."""

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

app = FastAPI(default_response_class=PlainTextResponse)


@app.get("/")
async def index():
    return ""


@app.get("/user/{name}")
async def user(name: str):
    return name


@app.post("/user")
async def create():
    return ""
