"""A small API: ``GET /9000`` answers with the Fibonacci numbers up to 9000, as JSON."""

from flask import Flask, jsonify

application = Flask(__name__)

#: Largest accepted limit: its list contains 88 entries.
MAX = 10**18


@application.get("/")
def index():
    return "Try /9000: the Fibonacci numbers up to 9000.\n", {"Content-Type": "text/plain; charset=utf-8"}


@application.get("/<int:most>")
def fibonacci(most):
    if most > MAX:
        return jsonify(error=f"at most {MAX}"), 400
    numbers = []
    smaller, larger = 0, 1
    while smaller <= most:
        numbers.append(smaller)
        smaller, larger = larger, smaller + larger
    return jsonify(numbers)
