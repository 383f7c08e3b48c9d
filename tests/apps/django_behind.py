"""A Django site behind nginx: each page below every first path segment."""

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, HttpResponseRedirect, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="only for tests",
    MIDDLEWARE=["django.middleware.http.ConditionalGetMiddleware", "django.middleware.common.CommonMiddleware"],
    LOGGING_CONFIG=None,
    USE_TZ=True,
)

#: Additional variables of a reverse proxy, besides those that Django reads.
TOLD = ("SCRIPT_NAME", "SERVER_PROTOCOL", "REQUEST_SCHEME")


def environ(request, route, name):
    meta = request.META
    return JsonResponse(
        {
            "path": request.path,
            "query": request.GET.getlist("q"),
            "own": request.headers["X-Own"],
            "address": meta["REMOTE_ADDR"],
            "port": meta["REMOTE_PORT"],
            "uri": meta["REQUEST_URI"],
            "environ": {key: meta.get(key) for key in TOLD},
        }
    )


@csrf_exempt
def upload(request, route):
    file = request.FILES["file"]
    content = file.read()
    told = {"name": file.name, "size": len(content), "total": sum(content), "field": request.POST["field"]}
    return JsonResponse(told)


def page(request, route):
    return HttpResponse("a page")


def stream(request, route):
    return StreamingHttpResponse((f"{number}\n" for number in range(1000)), content_type="text/plain")


def large(request, route):
    return HttpResponse(b"x" * 5_000_000)


def error(request, route):
    raise RuntimeError("as the test asked")


def redirects(request, route):
    return HttpResponseRedirect("/elsewhere")


urlpatterns = [
    path("<route>/environ/<name>", environ),
    path("<route>/upload", upload),
    path("<route>/page", page),
    path("<route>/stream", stream),
    path("<route>/large", large),
    path("<route>/error", error),
    path("<route>/redirect", redirects),
]

application = get_wsgi_application()
