"""A Django project in one file: two light middlewares, no sessions, no database. Runs in the servers' workers.

The URL patterns are in django_urls.py, because a server may load this file under a different module name.
"""

from django.conf import settings
from django.core.wsgi import get_wsgi_application

settings.configure(
    DEBUG=False,
    SECRET_KEY="only for the benchmark",
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF="django_urls",
    INSTALLED_APPS=[],
    MIDDLEWARE=["django.middleware.security.SecurityMiddleware", "django.middleware.common.CommonMiddleware"],
    USE_TZ=True,
)

application = get_wsgi_application()
