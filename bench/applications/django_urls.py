"""The view and the URL patterns of django_view.py. Runs in the servers' workers."""

from django.http import JsonResponse
from django.urls import path


def greet(request, name):
    return JsonResponse({"greeting": f"Hello, {name}!", "method": request.method})


urlpatterns = [path("hello/<str:name>", greet)]
