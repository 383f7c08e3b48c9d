"""The routes of the benchmark with Falcon's WSGI application."""

import falcon


class Index:
    def on_get(self, request, response):
        response.text = ""


class Users:
    def on_post(self, request, response):
        response.text = ""


class User:
    def on_get(self, request, response, name):
        response.text = name


app = falcon.App(media_type=falcon.MEDIA_TEXT)
app.add_route("/", Index())
app.add_route("/user", Users())
app.add_route("/user/{name}", User())
