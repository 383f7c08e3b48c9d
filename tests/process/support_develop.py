"""Applications of the tests of `develop`: a package `shop` whose answer is a text of its module `views`."""

APP = """\
from shop import views
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [views.TEXT.encode()]
"""
ASGI = """\
from shop import views
async def application(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": views.TEXT.encode()})
"""
#: Fields of a browser that asks for a page.
BROWSER = [("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")]
#: Options of a worker with greenlets.
GEVENT = ("--gevent", "50", "--gevent-monkey-patch")
