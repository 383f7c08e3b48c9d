"""The routes of the benchmark with Flask."""

from flask import Flask

app = Flask(__name__)
TEXT = {"Content-Type": "text/plain; charset=utf-8"}


@app.get("/")
def index():
    return "", TEXT


@app.get("/user/<name>")
def user(name):
    return name, TEXT


@app.post("/user")
def create():
    return "", TEXT
