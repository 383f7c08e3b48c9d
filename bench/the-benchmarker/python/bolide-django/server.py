"""The routes of the benchmark with Django: the settings, the views and the WSGI application in one file."""

from django.conf import settings

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, MIDDLEWARE=[])

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.http import require_GET, require_POST  # noqa: E402

TEXT = "text/plain; charset=utf-8"


@require_GET
def index(request):
    return HttpResponse(content_type=TEXT)


@require_GET
def user(request, name):
    return HttpResponse(name, content_type=TEXT)


@require_POST
def create(request):
    return HttpResponse(content_type=TEXT)


urlpatterns = [path("", index), path("user", create), path("user/<str:name>", user)]
app = get_wsgi_application()
