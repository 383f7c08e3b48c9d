"""A JSON view of FastAPI with a path parameter. Runs in the servers' workers."""

from fastapi import FastAPI

application = FastAPI()


@application.get("/hello/{name}")
async def greet(name: str):
    return {"greeting": f"Hello, {name}!", "items": [1, 2, 3]}
