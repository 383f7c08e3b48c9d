"""Django projects: Django imports URLs and views at the first request; Bolide does so before a worker serves, and `develop` shows
changed templates and static files as `runserver` does.
"""

import signal

import pytest
from support.waiting import wait_until
from support_develop import BROWSER

SETTINGS = """\
SECRET_KEY = "x"
DEBUG = True
ROOT_URLCONF = "shop.urls"
STATIC_URL = "/static/"
INSTALLED_APPS = ["django.contrib.staticfiles", "shop"]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
"""
URLS = 'from django.urls import path\nfrom shop import views\nurlpatterns = [path("", views.home)]\n'
VIEWS = 'from django.shortcuts import render\ndef home(request):\n    return render(request, "home.html")\n'
APPLICATION = """\
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
from django.core.{kind} import get_{kind}_application
application = get_{kind}_application()
"""


@pytest.fixture
def project(tmp_path):
    directory = tmp_path / "shop"
    for name in ("templates", "static"):
        (directory / name).mkdir(parents=True)
    files = {"__init__.py": "", "settings.py": SETTINGS, "urls.py": URLS, "views.py": VIEWS}
    files.update({f"{kind}.py": APPLICATION.format(kind=kind) for kind in ("wsgi", "asgi")})
    files.update({"templates/home.html": "old", "static/shop.css": "body {}"})
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def develop(start, kind):
    return start("--reload", module=f"shop.{kind}", master=False)


@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
def test_while_developing_a_changed_template_and_static_files_are_seen(kind, start, project):
    instance = develop(start, kind)
    assert instance.body() == "old"
    (project / "templates" / "home.html").write_text("young")
    assert instance.body() == "young"
    style = instance.get("/static/shop.css")
    assert (style.status, style.text, style.get("content-type")) == (200, "body {}", "text/css")
    assert instance.get("/static/none.css").status == 404
    assert instance.log.count("static files of Django are served at /static/ while developing") == 1


def test_while_developing_a_view_that_does_not_load_is_the_page_and_the_old_code_answers_programs(start, project):
    instance = develop(start, "wsgi")
    assert instance.body() == "old"
    with instance.looks_away():
        (project / "views.py").write_text(VIEWS + "prices\n")
    instance.wait_for_text("the new code could not be loaded (NameError: name 'prices' is not defined)")
    page = instance.get("/", BROWSER)
    assert (page.status, "NameError" in page.text) == (500, True)
    assert instance.body() == "old"
    (project / "views.py").write_text(VIEWS)
    wait_until(lambda: instance.get("/", BROWSER).text == "old", "the code without the mistake")


@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
def test_a_reload_to_views_that_do_not_load_changes_nothing(kind, start, project):
    instance = start("--processes", 2, module=f"shop.{kind}")
    assert instance.body() == "old"
    (project / "views.py").write_text(VIEWS + "prices\n")
    instance.send_signal(signal.SIGHUP)
    why = "Django's URLconf can't be imported: NameError: name 'prices' is not defined"
    instance.wait_for_text(f"generation 2 could not be loaded ({why}): generation 1 keeps serving")
    assert instance.body() == "old"
    assert instance.get("/static/shop.css").status == 404, "only while developing"


def test_views_that_exit_at_their_import_change_nothing_either(start, project):
    instance = start(module="shop.wsgi")
    (project / "views.py").write_text(VIEWS + "raise SystemExit(3)\n")
    instance.send_signal(signal.SIGHUP)
    instance.wait_for_text("generation 2 could not be loaded (Django's URLconf can't be imported: SystemExit: 3)")
    assert instance.body() == "old"


def test_views_that_do_not_load_at_the_start_are_told_and_a_reload_repairs_them(start, project):
    (project / "views.py").write_text(VIEWS + "prices\n")
    instance = start(module="shop.wsgi")
    assert "WARNING: Django's URLconf can't be imported: NameError: name 'prices' is not defined; requests fail" in instance.log
    assert instance.get("/").status == 500
    (project / "views.py").write_text(VIEWS)
    instance.reload(2)
    assert instance.body() == "old"
