"""Django as an ASGI application behind a reverse proxy: forms, files and JSON, with any path prefix."""

import json as json_module

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import JsonResponse
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="only for tests", MIDDLEWARE=[], LOGGING_CONFIG=None)


def told_of(request):
    return {"length": request.headers.get("content-length"), "kind": request.headers.get("content-type")}


@csrf_exempt
def form(request):
    return JsonResponse({"form": request.POST.dict(), **told_of(request)})


@csrf_exempt
def json(request):
    return JsonResponse({"numbers": len(json_module.loads(request.body)["numbers"]), **told_of(request)})


@csrf_exempt
def upload(request):
    file = request.FILES["file"]
    content = file.read()
    return JsonResponse({"name": file.name, "size": len(content), "total": sum(content), "field": request.POST["field"]})


urlpatterns = [re_path(r"^[^/]+/form$", form), re_path(r"^[^/]+/json$", json), re_path(r"^[^/]+/upload$", upload)]
application = get_asgi_application()
