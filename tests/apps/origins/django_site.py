"""A Django application in one file: sessions, a login, forms, and public pages. Served by gunicorn.

Every personal page takes 300 ms, so that requests of several visitors reach the cache at the same time. The environment
variable DJANGO_FOLDER names the folder of the database.
"""

import os
import time

import django
from django.conf import settings
from django.contrib.auth import authenticate, login
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, HttpResponseRedirect
from django.middleware.csrf import get_token
from django.urls import path
from django.views.decorators.cache import cache_control

settings.configure(
    SECRET_KEY="a secret",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    USE_TZ=True,
    INSTALLED_APPS=[
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.sessions",
        "django.contrib.messages",
    ],
    MIDDLEWARE=[
        "django.middleware.http.ConditionalGetMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.path.join(os.environ["DJANGO_FOLDER"], "db.sqlite3"),
            "OPTIONS": {"timeout": 60},
        }
    },
)
django.setup()


def hello(request):
    """Reads a cookie directly, so Django adds no Vary. ConditionalGetMiddleware adds an ETag."""
    time.sleep(0.3)
    return HttpResponse(f"Hello {request.COOKIES.get('name')}")


def account(request):
    time.sleep(0.3)
    user = request.user
    return HttpResponse(f"account of {user.username if user.is_authenticated else 'nobody'}")


def sign_in(request):
    if request.method == "POST":
        user = authenticate(request, username=request.POST["name"], password=f"{request.POST['name']}-secret")
        login(request, user)
        return HttpResponseRedirect("/account")
    return HttpResponse(f"token={get_token(request)};")


def front(request):
    """Does not use the session."""
    time.sleep(0.3)
    return HttpResponse("the front page")


@cache_control(public=True, max_age=60)
def news(request):
    time.sleep(0.3)
    return HttpResponse("news")


urlpatterns = [
    path("", front),
    path("hello", hello),
    path("account", account),
    path("accounts/login/", sign_in),
    path("news", news),
]


def prepare():
    from django.contrib.auth.models import User

    call_command("migrate", verbosity=0)
    for name in ("alice", "bob"):
        User.objects.create_user(name, password=f"{name}-secret")


if __name__ == "__main__":
    prepare()
else:
    application = get_wsgi_application()
