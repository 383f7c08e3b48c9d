"""A small Falcon site."""

import falcon


class Hello:
    def on_get(self, request, response, name):
        response.text = f"hello {name} {request.get_param('q', default='')}"


class Json:
    def on_post(self, request, response):
        response.media = {"received": request.get_media(), "length": request.content_length}


class Cookies:
    def on_get(self, request, response):
        visits = int(request.cookies.get("visits", "0")) + 1
        response.text = f"{visits} {request.cookies.get('plain', 'none')}"
        response.set_cookie("visits", str(visits), secure=False)
        response.set_cookie("plain", "yes", secure=False)


class Upload:
    def on_post(self, request, response):
        told = {}
        for part in request.get_media():
            if part.name == "file":
                content = part.get_data()
                told.update(name=part.filename, size=len(content), total=sum(content))
            else:
                told[part.name] = part.get_text()
        response.media = told


class Redirect:
    def on_get(self, request, response):
        raise falcon.HTTPFound("/hello/redirected")


class Stream:
    def on_get(self, request, response):
        response.content_type = "text/plain"
        response.stream = (f"{number}\n".encode() for number in range(1000))


class Error:
    def on_get(self, request, response):
        raise RuntimeError("as the test asked")


class Where:
    def on_get(self, request, response):
        response.text = request.url


application = falcon.App()
for address, resource in {
    "/hello/{name}": Hello(),
    "/json": Json(),
    "/cookies": Cookies(),
    "/upload": Upload(),
    "/redirect": Redirect(),
    "/stream": Stream(),
    "/error": Error(),
    "/where": Where(),
}.items():
    application.add_route(address, resource)
