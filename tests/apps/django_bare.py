"""Django without middlewares, so that no code sets the length of a response: every kind of response that Django has."""

import io

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import FileResponse, HttpResponse, HttpResponseNotModified, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="only for tests",
    MIDDLEWARE=[],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    LOGGING_CONFIG=None,
)

TEXT = b"one two three"


class Told(HttpResponse):
    def close(self):
        super().close()
        print("closed a response", flush=True)


class Overridden(HttpResponse):
    """A subclass that generates its parts itself, independent of its content."""

    def __iter__(self):
        yield from (b"one ", b"two ", b"three")


def plain(request):
    return Told(TEXT)


def written(request):
    response = HttpResponse()
    for part in ("one ", "two ", "three"):
        response.write(part)
    return response


def template(request):
    made = engines["django"].from_string("one {{ second }} three")
    return TemplateResponse(request, made, {"second": "two"})


def overridden(request):
    return Overridden(b"not this")


def stream(request):
    return StreamingHttpResponse(part for part in (b"one ", b"two ", b"three"))


def stream_of_list(request):
    return StreamingHttpResponse([b"one ", b"two ", b"three"])


def file(request):
    return FileResponse(io.BytesIO(TEXT))


def empty(request):
    return HttpResponse()


def no_content(request):
    return HttpResponse(status=204)


def not_modified(request):
    return HttpResponseNotModified()


def too_few(request):
    return HttpResponse(TEXT, headers={"Content-Length": "50"})


def too_many(request):
    return HttpResponse(TEXT, headers={"Content-Length": "5"})


VIEWS = (
    plain,
    written,
    template,
    overridden,
    stream,
    stream_of_list,
    file,
    empty,
    no_content,
    not_modified,
    too_few,
    too_many,
)
urlpatterns = [path(view.__name__, view) for view in VIEWS]

application = get_wsgi_application()
