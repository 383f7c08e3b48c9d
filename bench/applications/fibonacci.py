"""A small Flask API: `/9000` returns the Fibonacci numbers below 9000 as a JSON list. Runs in the servers' workers."""

from flask import Flask, jsonify

application = Flask(__name__)


def fibonacci_below(limit):
    numbers = []
    current, following = 0, 1
    while current < limit:
        numbers.append(current)
        current, following = following, current + following
    return numbers


@application.get("/<int:limit>")
def answer(limit):
    return jsonify(fibonacci_below(limit))
