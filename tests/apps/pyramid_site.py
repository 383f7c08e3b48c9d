"""A small Pyramid site."""

from pyramid.config import Configurator
from pyramid.httpexceptions import HTTPFound
from pyramid.response import Response
from pyramid.session import SignedCookieSessionFactory


def hello(request):
    return Response(f"hello {request.matchdict['name']} {request.params.get('q', '')}")


def json(request):
    return {"received": request.json_body, "length": request.content_length}


def cookies(request):
    request.session["visits"] = request.session.get("visits", 0) + 1
    answer = Response(f"{request.session['visits']} {request.cookies.get('plain', 'none')}")
    answer.set_cookie("plain", "yes")
    return answer


def upload(request):
    file = request.POST["file"]
    content = file.file.read()
    return {"name": file.filename, "size": len(content), "total": sum(content), "field": request.POST["field"]}


def redirects(request):
    return HTTPFound("/hello/redirected")


def stream(request):
    return Response(app_iter=(f"{number}\n".encode() for number in range(1000)), content_type="text/plain")


def error(request):
    raise RuntimeError("as the test asked")


def where(request):
    return Response(request.url)


VIEWS = {
    "/hello/{name}": (hello, None),
    "/json": (json, "json"),
    "/cookies": (cookies, None),
    "/upload": (upload, "json"),
    "/redirect": (redirects, None),
    "/stream": (stream, None),
    "/error": (error, None),
    "/where": (where, None),
}

with Configurator(session_factory=SignedCookieSessionFactory("only for tests")) as configuration:
    for address, (view, renderer) in VIEWS.items():
        configuration.add_route(address, address)
        configuration.add_view(view, route_name=address, renderer=renderer)
    application = configuration.make_wsgi_app()
