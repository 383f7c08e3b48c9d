"""A small API in Flask: a query of a local database, a wait for another machine (microseconds in the path), and JSON."""

import sqlite3
import threading
import time

from flask import Flask, jsonify

app = Flask(__name__)
own = threading.local()
ROWS = 200


def connection():
    """Returns this thread's connection to a database in memory."""
    if not hasattr(own, "connection"):
        own.connection = sqlite3.connect(":memory:")
        own.connection.execute("create table item (id integer primary key, name text, price integer)")
        rows = [(number, f"item {number}", number * 7 % 100) for number in range(ROWS)]
        own.connection.executemany("insert into item values (?, ?, ?)", rows)
    return own.connection


@app.get("/view/<int:wait>")
def items(wait):
    found = connection().execute("select id, name, price from item where price > ? order by price limit 20", (wait % 90,))
    told = [{"id": number, "name": name, "price": price} for number, name, price in found]
    time.sleep(wait / 1e6)
    return jsonify(told)
