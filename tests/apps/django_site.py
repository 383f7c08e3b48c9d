"""A small Django site in one file."""

import json as json_module

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, HttpResponseRedirect, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="only for tests",
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    INSTALLED_APPS=["django.contrib.sessions"],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
    ],
    LOGGING_CONFIG=None,
    USE_TZ=True,
)


def hello(request, name):
    return HttpResponse(f"hello {name} {request.GET.get('q', '')}")


@csrf_exempt
def json(request):
    return JsonResponse({"received": json_module.loads(request.body), "length": int(request.META["CONTENT_LENGTH"])})


def cookies(request):
    request.session["visits"] = request.session.get("visits", 0) + 1
    answer = HttpResponse(f"{request.session['visits']} {request.COOKIES.get('plain', 'none')}")
    answer.set_cookie("plain", "yes")
    return answer


@csrf_exempt
def upload(request):
    file = request.FILES["file"]
    content = file.read()
    told = {"name": file.name, "size": len(content), "total": sum(content), "field": request.POST["field"]}
    return JsonResponse(told)


def redirects(request):
    return HttpResponseRedirect("/hello/redirected")


def stream(request):
    return StreamingHttpResponse((f"{number}\n" for number in range(1000)), content_type="text/plain")


def error(request):
    raise RuntimeError("as the test asked")


def where(request):
    return HttpResponse(request.build_absolute_uri())


urlpatterns = [
    path("hello/<name>", hello),
    path("json", json),
    path("cookies", cookies),
    path("upload", upload),
    path("redirect", redirects),
    path("stream", stream),
    path("error", error),
    path("where", where),
]

application = get_wsgi_application()
